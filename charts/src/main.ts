// What is generated of the chart and from it.
//
//   node charts/src/main.ts                      the chart's definitions from crds/
//   node charts/src/main.ts --helm PATH          also deploy/lockstep.yaml, for `kubectl apply -f`
//   node charts/src/main.ts --check [--helm PATH]   fails when what is committed is not what would be generated
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { chartDefinitions } from "./definitions.ts";
import { plainManifests } from "./manifests.ts";

const root = join(import.meta.dirname, "../..");
const TEMPLATES = "charts/lockstep/templates/crds";
const { values } = parseArgs({ options: { check: { type: "boolean" }, helm: { type: "string" } } });

const check = values.check === true;
const different: string[] = [];

function committed(file: string): string | undefined {
  try {
    return readFileSync(join(root, file), "utf8");
  } catch {
    return undefined;
  }
}

/** `text` undefined: there is to be no such file. */
function settle(file: string, text: string | undefined): void {
  if (committed(file) === text) return;
  if (check) different.push(file);
  else if (text === undefined) rmSync(join(root, file));
  else {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), text);
  }
}

const definitions = chartDefinitions(join(root, "crds"));
mkdirSync(join(root, TEMPLATES), { recursive: true });
for (const file of readdirSync(join(root, TEMPLATES))) {
  if (!definitions.some((one) => one.file === file)) settle(join(TEMPLATES, file), undefined);
}
for (const { file, text } of definitions) settle(join(TEMPLATES, file), text);
// After the definitions, which are templates of the chart that is rendered here.
if (values.helm !== undefined) {
  settle("deploy/lockstep.yaml", plainManifests(values.helm, join(root, "charts/lockstep")));
}

for (const file of different) {
  console.error(`${file} is out of date: run \`node charts/src/main.ts --helm PATH\` and commit the result`);
}
process.exitCode = different.length === 0 ? 0 : 1;
