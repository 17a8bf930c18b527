// `npm run e2e`: scenarios on a real Kubernetes. See HELP in options.ts.
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Api } from "./api.ts";
import { Cluster, type ClusterParts } from "./cluster.ts";
import { killRunningCommands } from "./command.ts";
import { startDaemon, stopDaemon } from "./daemon.ts";
import { E2eError } from "./error.ts";
import { ImageBuilder } from "./images.ts";
import { kubeconfigOf, layoutOf, logsOf, type Layout } from "./layout.ts";
import { HELP, parseCommand, selectScenarios, type E2eCommand, type RunCommand } from "./options.ts";
import { own } from "./owner.ts";
import { ensureMachine } from "./packages.ts";
import { adminCredentials } from "./pki.ts";
import { buildPrograms } from "./programs.ts";
import { formatDuration, step } from "./progress.ts";
import { runScenarios } from "./runner.ts";
import { SCENARIOS } from "./scenarios/index.ts";
import { isSuccess, renderSummary, type Outcome } from "./summary.ts";
import { VOLUMES_DAEMON, remains, takeDown } from "./teardown.ts";
import { Volumes } from "./volumes.ts";

const started = performance.now();
const say = (line: string): void => {
  const clock = formatDuration(performance.now() - started).padStart(12);
  console.error(line === "" ? "" : line.replace(/^(\n*)/, `$1${clock}  `));
};

const interrupted = new AbortController();

async function prepare(layout: Layout): Promise<{ parts: ClusterParts; images: ImageBuilder }> {
  await ensureMachine(say);
  const programs = await buildPrograms(say, layout);
  return {
    parts: { layout, programs, say, signal: interrupted.signal },
    images: new ImageBuilder(say, layout, programs),
  };
}

async function startCluster(parts: ClusterParts, images: ImageBuilder): Promise<Cluster> {
  if (remains(parts.layout).length > 0)
    await step(say, "taking down what an earlier run left", () => takeDown(parts.layout));
  const pause = await images.pause();
  return step(say, "starting Kubernetes: five nodes in three zones", () => Cluster.start(parts, pause));
}

function startVolumesDaemon(layout: Layout): void {
  startDaemon(layout.run, {
    name: VOLUMES_DAEMON,
    command: process.execPath,
    args: [import.meta.filename, "volumes"],
    logFile: join(logsOf(layout), `${VOLUMES_DAEMON}.log`),
  });
}

function tellHowToUse(parts: ClusterParts): void {
  console.log(`export KUBECONFIG=${kubeconfigOf(parts.layout)}
export PATH=${parts.programs.clients}:$PATH`);
  say(
    "The cluster is up. The lines above make kubectl and helm work in a shell; `npm run e2e -- down` ends it.",
  );
}

async function up(layout: Layout): Promise<number> {
  const { parts, images } = await prepare(layout);
  const release = own(layout);
  try {
    await startCluster(parts, images);
    startVolumesDaemon(layout);
  } catch (error) {
    if (interrupted.signal.aborted) await takeDown(layout);
    throw error;
  } finally {
    release();
  }
  tellHowToUse(parts);
  return 0;
}

async function down(layout: Layout): Promise<number> {
  const release = own(layout);
  try {
    await takeDown(layout);
    const left = remains(layout);
    for (const what of left) say(`still there: ${what}`);
    if (left.length === 0) say("The cluster is down; built programs and images are kept.");
    return left.length === 0 ? 0 : 1;
  } finally {
    release();
  }
}

async function build(layout: Layout, withImages: boolean): Promise<number> {
  const { images } = await prepare(layout);
  const release = own(layout);
  try {
    await images.pause();
    await images.runBase();
    await images.buildBase();
    if (withImages) await images.project();
    say("Everything is built.");
    return 0;
  } finally {
    release();
  }
}

async function volumes(layout: Layout): Promise<number> {
  await new Volumes(new Api(adminCredentials(layout)), layout, say).work(interrupted.signal);
  return 0;
}

async function obtainCluster(
  command: RunCommand,
  parts: ClusterParts,
  images: ImageBuilder,
): Promise<Cluster> {
  if (!command.reuse) return startCluster(parts, images);
  const cluster = Cluster.attach(parts);
  // This process plays provisioner now; two would race for each claim.
  await stopDaemon(parts.layout.run, VOLUMES_DAEMON);
  return cluster;
}

async function runAll(command: RunCommand, layout: Layout): Promise<number> {
  const scenarios = selectScenarios(SCENARIOS, command);
  const { parts, images } = await prepare(layout);
  const release = own(layout);
  const artifacts = mkdtempSync(join(tmpdir(), "lockstep-e2e-"));
  const endOfVolumes = new AbortController();
  const { signal } = interrupted;
  let outcomes: readonly Outcome[] = [];
  try {
    const cluster = await obtainCluster(command, parts, images);
    const working = cluster.volumes.work(endOfVolumes.signal);
    try {
      const inputs = { cluster, images, say, artifacts, signal, stopAtFailure: command.keep };
      outcomes = await runScenarios(scenarios, inputs);
    } finally {
      endOfVolumes.abort();
      await working;
      cluster.api.close();
    }
  } finally {
    if (command.keep || command.reuse) leaveRunning(parts);
    else await step(say, "taking the cluster down", () => takeDown(layout));
    release();
    if (readdirSync(artifacts).length === 0) rmSync(artifacts, { recursive: true });
  }
  console.log(`\n${renderSummary(outcomes)}`);
  const success = isSuccess(outcomes);
  if (success) rmSync(artifacts, { recursive: true, force: true });
  else if (existsSync(artifacts)) console.log(`diagnostics: ${artifacts}`);
  if (signal.aborted) return 130;
  return success ? 0 : 1;
}

function leaveRunning(parts: ClusterParts): void {
  startVolumesDaemon(parts.layout);
  tellHowToUse(parts);
}

function list(ci: boolean): number {
  for (const { name, about, minutes, ci: inCi } of SCENARIOS)
    if (inCi || !ci)
      console.log(`${name.padEnd(24)} ${inCi ? "ci" : "  "}  at most ${String(minutes)} min  ${about}`);
  return 0;
}

async function perform(command: E2eCommand, layout: Layout): Promise<number> {
  switch (command.kind) {
    case "help":
      console.log(HELP);
      return 0;
    case "list":
      return list(command.ci);
    case "build":
      return build(layout, command.images);
    case "up":
      return up(layout);
    case "down":
      return down(layout);
    case "volumes":
      return volumes(layout);
    case "run":
      return runAll(command, layout);
  }
}

async function main(): Promise<number> {
  let command: E2eCommand;
  try {
    command = parseCommand(process.argv.slice(2));
    if (command.kind === "run") selectScenarios(SCENARIOS, command);
  } catch (error) {
    console.error(`${(error as Error).message}\nnpm run e2e -- --help says what there is.`);
    return 2;
  }
  try {
    return await perform(command, layoutOf(process.env, join(import.meta.dirname, "../..")));
  } catch (error) {
    if (interrupted.signal.aborted) return 130;
    console.error(error instanceof E2eError ? error.message : error);
    return 1;
  }
}

function onSignal(): void {
  if (interrupted.signal.aborted) {
    console.error("Already ending: the cluster is being taken down.");
    return;
  }
  say("interrupted: ending");
  interrupted.abort();
  killRunningCommands();
}
process.on("SIGINT", onSignal);
process.on("SIGTERM", onSignal);

process.exitCode = await main();
// An abandoned scenario may still wait for something.
process.exit();
