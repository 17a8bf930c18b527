import { fileURLToPath } from "node:url";
import type { Canary, Patch } from "./canaries.ts";

/** The root of the repository, as a URL that ends in a slash. */
export const ROOT: URL = new URL("../../../", import.meta.url);

/** Names the canary that a process carries; its children inherit it. */
export const CANARY_VARIABLE = "LOCKSTEP_CANARY";

/** The files that a canary changes, each once. */
export function filesOf(canary: Canary): readonly string[] {
  return [...new Set(canary.patches.map((patch) => patch.file))];
}

/** The canary's patches to one file. */
export function patchesFor(canary: Canary, file: string): readonly Patch[] {
  return canary.patches.filter((patch) => patch.file === file);
}

/**
 * Patches a source. A canary whose place in production has moved must not pass for one that is not caught, so anything
 * but exactly one occurrence is an error.
 *
 * @throws {Error} when a patch's `find` does not occur exactly once
 */
export function applyPatches(canary: string, source: string, patches: readonly Patch[]): string {
  let patched = source;
  for (const { file, find, replace } of patches) {
    const pieces = patched.split(find);
    if (pieces.length !== 2) {
      const times = pieces.length === 1 ? "nowhere" : `${pieces.length - 1} times`;
      throw new Error(
        `canary ${canary} does not fit any more: in ${file} this is found ${times} instead of once:\n${find}`,
      );
    }
    patched = pieces.join(replace);
  }
  return patched;
}

/** The absolute path of a file of the repository. */
export function pathOf(file: string): string {
  return fileURLToPath(new URL(file, ROOT));
}

/** Which canary this process carries. */
export interface ActiveCanary {
  readonly name: string;
  /** Files that it changes and that were not loaded yet: as long as there are any, the bug is not there. */
  readonly missing: ReadonlySet<string>;
}

const ACTIVE = Symbol.for("lockstep.sim.canary");

type Carrier = Record<typeof ACTIVE, ActiveCanary | undefined>;

/** How a child process is started so that it carries a canary, wherever its working directory is. */
export function launchOf(name: string): {
  readonly execArgv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
} {
  return {
    execArgv: ["--import", new URL("register.ts", import.meta.url).href],
    env: { [CANARY_VARIABLE]: name },
  };
}

/** Set by `register.ts`. Kept on the global object: the hook and the runner may be loaded apart from each other. */
export function setActiveCanary(active: ActiveCanary): void {
  (globalThis as unknown as Carrier)[ACTIVE] = active;
}

/** undefined: production as it is. */
export function activeCanary(): ActiveCanary | undefined {
  return (globalThis as unknown as Carrier)[ACTIVE];
}

/**
 * For a runner, once everything is imported: a canary that was asked for and is not in place proves nothing.
 *
 * @throws {Error} when the environment names a canary that this process does not carry, in whole
 */
export function assertCanaryInPlace(environment: Readonly<Record<string, string | undefined>>): void {
  const wanted = environment[CANARY_VARIABLE] ?? "";
  const active = activeCanary();
  if (wanted === "" && active === undefined) return;
  if (active?.name !== wanted) {
    throw new Error(`${CANARY_VARIABLE} is "${wanted}", yet the process was not started with register.ts`);
  }
  const missing = [...active.missing];
  if (missing.length > 0)
    throw new Error(`canary ${wanted} is not in place: ${missing.join(", ")} not loaded`);
}
