// A process that owns a lock and looks every few milliseconds whether it still does. Its keeper stops it, moves its clocks
// and keeps its main loop busy; what it says is on standard output, a line of JSON each.
import { createInterface } from "node:readline";
import { connect } from "@lockstep/client";
import { trueNowMs } from "../../support/clocks/shifted-clocks.ts";

export interface OwnerOptions {
  readonly endpoints: readonly string[];
  readonly lock: string;
  readonly ttlMs: number;
  readonly mainLoopStallMaxMs?: number;
}

export type OwnerReport =
  | { readonly what: "owns"; readonly token: number }
  /** Once, when a look found that it does not own it any more; true time of the last look that found it did. */
  | { readonly what: "over"; readonly code: string; readonly lastSureAtMs: number }
  /** A callback kept the main loop busy; whether it owned it then, in the same turn, before anything else ran. */
  | { readonly what: "spun"; readonly owns: boolean; readonly atMs: number };

export interface OwnerOrder {
  readonly spinMs: number;
}

const LOOK_EVERY_MS = 5;

const { endpoints, lock, ttlMs, mainLoopStallMaxMs } = JSON.parse(process.argv[2] ?? "") as OwnerOptions;
const tell = (report: OwnerReport): void => {
  process.stdout.write(`${JSON.stringify(report)}\n`);
};
process.stdin.on("end", () => process.exit(0));

const client = await connect({ endpoints });
const session = await client.session({
  ttlMs,
  owner: `process ${String(process.pid)}`,
  ...(mainLoopStallMaxMs === undefined ? {} : { mainLoopStallMaxMs }),
});
const held = await client.lock(lock, { session });
let lastSureAtMs = 0;

function look(): string | undefined {
  const atMs = trueNowMs();
  try {
    held.assertHeld();
    lastSureAtMs = atMs;
    return undefined;
  } catch (error) {
    return (error as { readonly code: string }).code;
  }
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const { spinMs } = JSON.parse(line) as OwnerOrder;
  const until = trueNowMs() + spinMs;
  while (trueNowMs() < until);
  tell({ what: "spun", owns: look() === undefined, atMs: trueNowMs() });
});
const looking = setInterval(() => {
  const code = look();
  if (code === undefined) return;
  clearInterval(looking);
  tell({ what: "over", code, lastSureAtMs });
}, LOOK_EVERY_MS);
look();
tell({ what: "owns", token: held.token });
