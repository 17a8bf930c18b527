import { LockstepError, type WatchEvent } from "@lockstep/client";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { eventJson } from "../json.ts";
import { cellText } from "../output.ts";
import { rangeOf, type RangeFlags } from "./kv.ts";

export interface WatchFlags extends RangeFlags {
  readonly revision?: number;
  readonly previous?: boolean;
  readonly puts?: boolean;
  readonly deletes?: boolean;
  readonly count?: number;
}

/** Prints changes until it is stopped (exit code 0), or --count of them have come. */
export async function watch(context: Context, key: string, flags: WatchFlags): Promise<number> {
  const range = rangeOf(key, flags);
  const { terminal, options } = context;
  const stop = new AbortController();
  const unsubscribe = terminal.onStop(() => stop.abort());
  try {
    return await context.withClient(async (client) => {
      const omit = flags.puts === false ? "put" : flags.deletes === false ? "delete" : undefined;
      const stream = client.watch(range, {
        ...(flags.revision === undefined ? {} : { startRevision: flags.revision }),
        ...(omit === undefined ? {} : { omit }),
        returnPrevious: flags.previous ?? false,
        signal: stop.signal,
      });
      let seen = 0;
      for await (const event of stream) {
        terminal.out(options.output === "json" ? `${JSON.stringify(eventJson(event))}\n` : eventText(event));
        seen += 1;
        if (seen === flags.count) break;
      }
      return EXIT.ok;
    });
  } catch (error) {
    if (stop.signal.aborted && error instanceof LockstepError) return EXIT.ok;
    throw error;
  } finally {
    unsubscribe();
  }
}

function eventText(event: WatchEvent): string {
  const revision = String(event.kv.modRevision).padStart(8);
  const value = event.kind === "put" ? ` = ${cellText(event.kv.value)}` : "";
  const cause = event.cause === "client" ? "" : `  (${event.cause})`;
  return `${revision}  ${event.kind.padEnd(6)}  ${cellText(event.kv.key)}${value}${cause}\n`;
}
