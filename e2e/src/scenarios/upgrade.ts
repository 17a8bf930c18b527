// The operator is upgraded, and no member notices; the cell's data format is raised after the last member can apply it,
// and there is no way back.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { Cell, installOperator, isTrue, leadingOperator, otherCellImage } from "../lockstep.ts";
import { describePhase } from "../load-client.ts";
import type { LoadClient } from "../load-client.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import { runningPods, secondsSince, startSparedLoad, untilTold } from "./steps.ts";

const NEXT_FORMAT_IMAGE = "e2e.lockstep.dev/cell:next-format";
const ROLL_MS = 300_000;
const GAP_MS_MAX = 1_000;
/** What the Dockerfile takes from the repository. */
const SOURCES = [
  ...["package.json", "package-lock.json", ".npmrc", ".dockerignore", "Dockerfile", "LICENSE"],
  ...["scripts", "proto", "gateway", "client", "cell", "cli"],
  ...["operator/package.json", "test/package.json", "bench/package.json", "e2e/package.json"],
];

interface Parts {
  readonly context: ScenarioContext;
  readonly cell: Cell;
  readonly load: LoadClient;
}

/** Another operator with another default image for cells: neither is a reason to restart anybody. */
async function upgradeOperator({ context, cell, load }: Parts): Promise<void> {
  const { cluster } = context;
  await load.mark("operator upgrade");
  const before = await runningPods(context, cell);
  const leader = await leadingOperator(context);
  await cluster.tagImage(
    (await context.projectImages()).operator.image,
    "docker.io/library/lockstep-operator:upgraded",
  );
  const defaultCellImage = await otherCellImage(context, "upgraded");
  context.finally(() => installOperator(context));
  const started = performance.now();
  await installOperator(context, ["image.tag=upgraded", `defaultCellImage=${defaultCellImage}`]);
  await context.until(
    "an upgraded operator leads",
    async () => (await leadingOperator(context)).pod !== leader.pod,
    { timeoutMs: 60_000 },
  );
  // A change that only the new one can make: it has looked at the cell.
  const { metadata } = await cell.get();
  await cell.patch({ replacementPolicy: { after: "2m" } });
  const after = await cell.until(
    "the upgraded operator has seen the cell",
    ({ status }) => (status?.observedGeneration ?? 0) > metadata.generation,
  );
  assert.ok(isTrue(after, "UpToDate"));
  await cell.untilReady();
  assert.deepEqual(await runningPods(context, cell), before, "no member was restarted");
  context.say(`operator upgraded in ${secondsSince(started)}; no member was restarted`);
  const report = await load.report();
  context.say(describePhase(report));
  assert.ok(report.current.longestWriteGapMs <= GAP_MS_MAX);
}

/** A cell image of this repository that applies one format version more. */
async function buildNextFormat(context: ScenarioContext): Promise<void> {
  const { cluster, images } = context;
  const copy = mkdtempSync(join(tmpdir(), "lockstep-next-format-"));
  context.finally(() => rmSync(copy, { recursive: true, force: true }));
  for (const source of SOURCES)
    cpSync(join(cluster.layout.repository, source), join(copy, source), {
      recursive: true,
      filter: (path) => !["node_modules", "dist"].includes(basename(path)),
    });
  const file = join(copy, "cell/src/machine/state.ts");
  const text = readFileSync(file, "utf8");
  const raised = text.replace(/(?<=^export const FORMAT_VERSION_MAX = )\d+(?=;$)/m, (version) =>
    String(Number(version) + 1),
  );
  assert.notEqual(raised, text, `${file} says which format it applies`);
  writeFileSync(file, raised);
  const archive = await images.build({ image: NEXT_FORMAT_IMAGE, context: copy, target: "cell" });
  await cluster.importImage(archive);
}

async function raiseFormat({ context, cell, load }: Parts): Promise<void> {
  await buildNextFormat(context);
  await load.mark("roll to the next format");
  const { status } = await cell.get();
  const format = status?.formatVersion ?? 0;
  const started = performance.now();
  await cell.patch({ image: NEXT_FORMAT_IMAGE });
  await cell.until(
    "the format is raised, last of all",
    (object) => {
      if (object.status?.formatVersion === format) return false;
      assert.ok(isTrue(object, "UpToDate"), "only when every member applies it");
      return object.status?.formatVersion === format + 1;
    },
    ROLL_MS,
  );
  await cell.untilReady();
  context.say(
    `format ${String(format)} → ${String(format + 1)} ${secondsSince(started)} after the new image`,
  );
  context.say(describePhase(await load.report()));
}

/** The old program cannot read what is written now: it stops at the first member and says so. */
async function refuseDowngrade({ context, cell, load }: Parts): Promise<void> {
  await load.mark("downgrade");
  const older = await otherCellImage(context, "older");
  await cell.patch({ image: older });
  const { message } = await untilTold(context, cell, /format version|newer format/i, ROLL_MS);
  assert.match(message, /Correct the spec/);
  const downgraded = (await cell.pods()).filter(({ spec }) => spec.containers[0]?.image === older);
  assert.equal(downgraded.length, 1, "only the first got the old image");
  await cell.patch({ image: NEXT_FORMAT_IMAGE });
  await cell.untilReady(ROLL_MS);
  await cell.checkAtRest();
  context.say(describePhase(await load.report()));
}

export const upgrade: Scenario = {
  name: "upgrade",
  about:
    "another operator restarts nobody; a roll to a newer format raises it last, and a downgrade is refused",
  ci: false,
  minutes: 20,
  run: async (context) => {
    await installOperator(context);
    const { cell } = await Cell.create(context);
    const parts = { context, cell, load: await startSparedLoad(context, cell) };
    await upgradeOperator(parts);
    await raiseFormat(parts);
    await refuseDowngrade(parts);
    await parts.load.verify();
  },
};
