// etcd's own Go client and its raw stubs, against three real members: `etcd-conformance`, see go/main.go.
import { after, before, describe } from "node:test";
import { startControl, type Control } from "./control.ts";
import { chosenOf, declareScenarios, scenarioNames } from "./harness.ts";
import { startTarget, targetKind, type Target, type TargetOptions } from "./target.ts";
import { conformanceProgram } from "./tools.ts";

const command = await conformanceProgram();
const isFull = (name: string): boolean => name.startsWith("nospace/");

async function describeGroup(
  group: string,
  select: (name: string) => boolean,
  options: TargetOptions & { readonly flags?: readonly string[] },
): Promise<void> {
  const program = { command, args: [group] };
  const names = chosenOf(await scenarioNames(program)).filter(select);
  if (names.length === 0) return;
  describe(`etcd's Go client: ${group}`, { timeout: 900_000 }, () => {
    let target: Target;
    let control: Control;
    before(async () => {
      target = await startTarget(options);
      control = await startControl(target);
    });
    after(async () => {
      control.close();
      await target.stop();
    });
    declareScenarios(program, names, () => [
      ...["-endpoints", target.endpoints.join(","), "-control", control.url, "-timeout", "120s"],
      ...(target.kind === "lockstep" ? ["-lockstep"] : []),
      ...(options.flags ?? []),
    ]);
  });
}

const nightly = process.env["LOCKSTEP_TEST_DEPTH"] === "nightly";

await describeGroup("api", (name) => !isFull(name), {});
// A cell has no quota of this kind: it watches the free space of its disks.
if (targetKind === "etcd")
  await describeGroup("api", isFull, {
    quotaBytes: 16 * 2 ** 20,
    flags: ["-nospace", "-run", "^nospace/"],
  });
await describeGroup("recipes", () => true, {});
await describeGroup("churn", () => true, {
  flags: ["-duration", nightly ? "10m" : "30s", "-kill-every", nightly ? "20s" : "8s"],
});
