/**
 * Loads production with a known bug: `LOCKSTEP_CANARY=NAME node --import ./test/sim/canaries/register.ts FILE`. Without
 * the variable nothing happens. Child processes inherit the variable and, when they are forked with `process.execArgv`,
 * the import; worker threads inherit both.
 */
import { registerHooks } from "node:module";
import { findCanary } from "./canaries.ts";
import {
  activeCanary,
  applyPatches,
  CANARY_VARIABLE,
  filesOf,
  patchesFor,
  ROOT,
  setActiveCanary,
} from "./patching.ts";

const name = process.env[CANARY_VARIABLE] ?? "";
// A second import of this file, under another URL, must not patch what is patched.
if (name !== "" && activeCanary() === undefined) register(name);

function register(canaryName: string): void {
  const canary = findCanary(canaryName);
  const files = new Map(filesOf(canary).map((file) => [new URL(file, ROOT).href, file]));
  const missing = new Set(files.values());
  setActiveCanary({ name: canaryName, missing });
  registerHooks({
    load: (url, context, nextLoad) => {
      const loaded = nextLoad(url, context);
      const file = files.get(withoutQuery(url));
      if (file === undefined) return loaded;
      const { source } = loaded;
      if (source === undefined)
        throw new Error(`canary ${canaryName}: ${file} was loaded without its source`);
      const text = typeof source === "string" ? source : new TextDecoder().decode(source);
      const patched = applyPatches(canaryName, text, patchesFor(canary, file));
      missing.delete(file);
      return { ...loaded, source: patched };
    },
  });
}

function withoutQuery(url: string): string {
  const end = url.search(/[?#]/);
  return end === -1 ? url : url.slice(0, end);
}
