// One harness at a time works on the cluster of a run folder.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { formatIdentity, identityOf, isAlive, parseIdentity, type ProcessIdentity } from "./daemon.ts";
import { E2eError } from "./error.ts";
import type { Layout } from "./layout.ts";

/** Beside the run folder, not in it: taking a cluster down removes that. */
const ownerFile = (layout: Layout): string => `${layout.run}.owner`;

/** The harness that holds the cluster now, if one lives. */
export function ownerOf(layout: Layout): ProcessIdentity | undefined {
  try {
    const identity = parseIdentity(readFileSync(ownerFile(layout), "utf8"));
    return identity !== undefined && isAlive(identity) ? identity : undefined;
  } catch {
    return undefined;
  }
}

/** Takes the cluster for this process. Throws `busy` when another harness works on it. Release with the returned call. */
export function own(layout: Layout): () => void {
  const other = ownerOf(layout);
  if (other !== undefined && other.pid !== process.pid)
    throw new E2eError(
      "busy",
      `Another run works on this cluster (process ${String(other.pid)}). Wait for it, or end it: kill ${String(other.pid)}`,
    );
  const self = identityOf(process.pid);
  if (self === undefined) throw new E2eError("state", "this process is not to be found in /proc");
  mkdirSync(join(layout.run, ".."), { recursive: true });
  writeFileSync(ownerFile(layout), formatIdentity(self));
  return () => rmSync(ownerFile(layout), { force: true });
}
