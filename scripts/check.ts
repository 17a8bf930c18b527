// Everything CI checks besides the tests, in order of speed. Prints one line a step; the first failure's output is
// shown whole and the exit code is 1.
import { spawnSync } from "node:child_process";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const bin = (name: string): string => join(root, "node_modules/.bin", name);

const steps: readonly { readonly name: string; readonly command: readonly string[] }[] = [
  { name: "format", command: [bin("prettier"), "--log-level", "warn", "--check", "."] },
  { name: "wire schema (buf lint)", command: [bin("buf"), "lint"] },
  { name: "generated code is fresh", command: [process.execPath, "scripts/generate.ts", "--check"] },
  { name: "types", command: [bin("tsc"), "-p", "tsconfig.json"] },
  { name: "pure folders are free of Node", command: [bin("tsc"), "-p", "cell/tsconfig.pure.json"] },
  { name: "lint and import arrows", command: [bin("eslint"), "--max-warnings", "0", "."] },
  { name: "API reference", command: [bin("typedoc"), "--options", "client/typedoc.mjs", "--emit", "none"] },
  { name: "tidy", command: [process.execPath, "scripts/tidy.ts"] },
];

for (const step of steps) {
  const started = performance.now();
  const [program, ...args] = step.command;
  if (program === undefined) throw new TypeError("a step needs a command");
  const result = spawnSync(program, args, { cwd: root, encoding: "utf8", maxBuffer: 64 * 1024 * 1024 });
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  if (result.status !== 0) {
    console.error(`✗ ${step.name} (${seconds} s)\n${result.stdout}${result.stderr}`);
    process.exit(1);
  }
  console.log(`✓ ${step.name} (${seconds} s)`);
}
