// jetcd, the Java client, against three real members. Where there is no Java or no Maven, the tests are skipped.
import { cpSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { cached } from "../../../e2e/src/cache.ts";
import { run } from "../../support/run.ts";
import { chosenOf, declareScenarios, scenarioNames } from "./harness.ts";
import { startTarget, type Target } from "./target.ts";
import { layout } from "./tools.ts";

const folder = join(import.meta.dirname, "jetcd");

async function succeeds(command: string, args: readonly string[]): Promise<boolean> {
  const ran = await run(command, args).catch(() => undefined);
  return ran?.code === 0;
}

/** The folder with jetcd's jars and our compiled scenarios, made once. */
function classes(): Promise<string> {
  const inputs = Object.fromEntries(
    ["pom.xml", "Scenarios.java"].map((name) => [name, readFileSync(join(folder, name), "utf8")]),
  );
  return cached(layout.cache, "etcd-jetcd", inputs, async (target) => {
    for (const name of Object.keys(inputs)) cpSync(join(folder, name), join(target, name));
    const steps: readonly (readonly [string, readonly string[]])[] = [
      ["mvn", ["--batch-mode", "--quiet", "dependency:copy-dependencies", "-DoutputDirectory=jars"]],
      ["javac", ["-cp", "jars/*", "-d", ".", "Scenarios.java"]],
    ];
    for (const [command, args] of steps) {
      const { code, out, err } = await run(command, args, { cwd: target, timeoutMs: 600_000 });
      if (code !== 0) throw new Error(`${command} ended with ${String(code)}:\n${out}${err}`);
    }
  });
}

if (!(await succeeds("javac", ["-version"])) || !(await succeeds("mvn", ["--version"]))) {
  it("jetcd", { skip: "there is no javac, or no mvn" }, () => undefined);
} else {
  const program = {
    command: "java",
    args: ["-XX:TieredStopAtLevel=1", "-cp", "jars/*:.", "Scenarios"],
    cwd: await classes(),
  };
  const names = chosenOf(await scenarioNames(program));
  describe("jetcd", { timeout: 600_000 }, () => {
    let target: Target;
    before(async () => {
      target = await startTarget();
    });
    after(() => target.stop());
    declareScenarios(program, names, () => ["-endpoints", target.endpoints.join(",")]);
  });
}
