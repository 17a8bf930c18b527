// The python client `etcd3` against three real members. Where there is no python, the tests are skipped.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { cached } from "../../../e2e/src/cache.ts";
import { run } from "../../support/run.ts";
import { chosenOf, declareScenarios, scenarioNames } from "./harness.ts";
import { startTarget, type Target } from "./target.ts";
import { layout } from "./tools.ts";

const folder = join(import.meta.dirname, "python");
const script = join(folder, "scenarios.py");
const requirements = join(folder, "requirements.txt");

/** The folder where the packages are, installed once; undefined without a python that can do so. */
async function pythonPackages(): Promise<string | undefined> {
  const version = await run("python3", ["--version"]).catch(() => undefined);
  if (version?.code !== 0) return undefined;
  const inputs = { python: version.out, requirements: readFileSync(requirements, "utf8") };
  // Not a virtual environment: that would hold the path of its folder, which gets its name when it is complete.
  return cached(layout.cache, "etcd-python", inputs, async (target) => {
    const args = ["-m", "pip", "install", "--quiet", "--target", target, "-r", requirements];
    const { code, err } = await run("python3", args, { timeoutMs: 600_000 });
    if (code !== 0) throw new Error(`pip ended with ${String(code)}:\n${err}`);
  });
}

const packages = await pythonPackages();

if (packages === undefined) {
  it("the python client", { skip: "there is no python3" }, () => undefined);
} else {
  const program = { command: "python3", args: [script], env: { PYTHONPATH: packages } };
  const names = chosenOf(await scenarioNames(program));
  describe("the python client etcd3", { timeout: 600_000 }, () => {
    let target: Target;
    before(async () => {
      target = await startTarget();
    });
    after(() => target.stop());
    declareScenarios(program, names, () => ["-endpoints", target.endpoints.join(",")]);
  });
}
