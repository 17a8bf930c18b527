// Things that are built once and kept: each entry is a folder whose name holds a hash of all that went into it.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { identityOf } from "./daemon.ts";

/** What an entry is made from: any change of a name or a value gives another key. */
export type Inputs = Readonly<Record<string, string>>;

/** 16 hex digits that stand for the inputs, whatever their order. */
export function cacheKey(inputs: Inputs): string {
  const hash = createHash("sha256");
  // Lengths first: no two different lists of names and values run together into the same bytes.
  for (const name of Object.keys(inputs).sort()) {
    const value = inputs[name] ?? "";
    hash.update(`${String(Buffer.byteLength(name))}:${name}${String(Buffer.byteLength(value))}:${value}`);
  }
  return hash.digest("hex").slice(0, 16);
}

/** Entries of one name that are kept, the one in use among them: switching between two branches builds nothing. */
const ENTRIES_KEPT = 3;
const UNFINISHED = /^\.unfinished-(\d+)-/;

/** The folder of an entry, built or not. */
export const entryOf = (cache: string, name: string, inputs: Inputs): string =>
  join(cache, `${name}-${cacheKey(inputs)}`);

/**
 * Returns the entry's folder, building it if it is not there. `build` fills a folder under another name, which takes its
 * real one only when `build` has returned: an interrupted build leaves nothing that could be taken for whole.
 */
export async function cached(
  cache: string,
  name: string,
  inputs: Inputs,
  build: (folder: string) => Promise<void>,
): Promise<string> {
  const entry = entryOf(cache, name, inputs);
  if (existsSync(entry)) {
    utimesSync(entry, new Date(), new Date());
    return entry;
  }
  mkdirSync(cache, { recursive: true });
  removeAbandoned(cache);
  const unfinished = join(cache, `.unfinished-${String(process.pid)}-${name}`);
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished);
  try {
    await build(unfinished);
    // Another run may have built the same meanwhile; one is as good as the other.
    if (!existsSync(entry)) renameSync(unfinished, entry);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  removeOld(cache, name);
  return entry;
}

function removeAbandoned(cache: string): void {
  for (const file of readdirSync(cache)) {
    const pid = UNFINISHED.exec(file)?.[1];
    if (pid !== undefined && identityOf(Number(pid)) === undefined)
      rmSync(join(cache, file), { recursive: true, force: true });
  }
}

function removeOld(cache: string, name: string): void {
  const pattern = new RegExp(`^${name}-[0-9a-f]{16}$`);
  const entries = readdirSync(cache)
    .filter((file) => pattern.test(file))
    .map((file) => ({ path: join(cache, file), usedMs: statSync(join(cache, file)).mtimeMs }))
    .sort((a, b) => b.usedMs - a.usedMs);
  for (const old of entries.slice(ENTRIES_KEPT)) rmSync(old.path, { recursive: true, force: true });
}
