// Makes the files that come from the CustomResourceDefinitions. `--check` fails when the committed ones are stale.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { generateFiles } from "./generate.ts";

const root = join(import.meta.dirname, "../..");
const check = process.argv.includes("--check");

for (const [path, text] of await generateFiles()) {
  const file = join(root, path);
  if (!check) {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  } else if (read(file) !== text) {
    console.error(`${path} is out of date: run \`npm run gen\` and commit the result`);
    process.exitCode = 1;
  }
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}
