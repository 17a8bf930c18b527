#!/usr/bin/env node
// Starts the CLI on whatever Node runs this file (20 or newer). In the repository the program is TypeScript that Node
// runs directly from 22.18 on (an older Node hands over to the one that the repository installs); in a package, JavaScript.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import module from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const SELF = fileURLToPath(import.meta.url);
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);

/** The nearest folder upwards that has what was installed; undefined: none. */
function nearestModules() {
  for (let folder = dirname(SELF); ; folder = dirname(folder)) {
    const candidate = join(folder, "node_modules");
    if (existsSync(join(candidate, ".bin", "node"))) return candidate;
    if (dirname(folder) === folder) return undefined;
  }
}

const modules = nearestModules();
if (major > 22 || (major === 22 && minor >= 18)) {
  // Compiled code is kept beside what was installed (never in a folder that others may write): a start then takes a
  // quarter of the time. Where that folder cannot be written, Node goes without.
  if (modules !== undefined) module.enableCompileCache(join(modules, ".cache", "lockstep"));
  const source = new URL("../src/main.ts", import.meta.url);
  await import(existsSync(source) ? source.href : new URL("../dist/main.js", import.meta.url).href);
} else if (modules === undefined) {
  process.stderr.write(
    `lockstep needs Node 22.18 or newer; this is ${process.versions.node}, and no other was found in node_modules.\n` +
      "Run `npm ci` in the repository, or install a newer Node.\n",
  );
  process.exit(1);
} else {
  const node = join(modules, ".bin", "node");
  const child = spawn(node, [SELF, ...process.argv.slice(2)], { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => {
    process.stderr.write(`cannot run ${node}: ${error.message}\n`);
    process.exit(1);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}
