/**
 * What an operator costs that looks after many idle cells: the production program, built and started as in its image, as a
 * process of its own, with real TLS, gRPC, informers and Lease. Simulated are the apiserver, the nodes and the members,
 * whose admin API is real as well.
 *
 * `node operator/src/testing/fleet/main.ts --cells 100 --minutes 5`. Exit code 1 when a limit is passed.
 *
 * `--kubeconfig` names a real apiserver instead, whose objects are larger. It must be empty but for the definitions of
 * crds/, and alone, with no scheduler, controller manager or kubelet: an etcd and a kube-apiserver with
 * `--authorization-mode=AlwaysAllow --disable-admission-plugins=ServiceAccount,TaintNodesByCondition`.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { realApi, simulatedApi } from "./access.ts";
import type { FleetApi } from "./access.ts";
import { Members } from "./members.ts";
import { OperatorProcess } from "./operator-process.ts";
import { measured, megabytes, table, writesOf } from "./report.ts";
import type { Measured, Sample } from "./report.ts";
import { World } from "./world.ts";

const { values } = parseArgs({
  options: {
    cells: { type: "string", default: "100" },
    voters: { type: "string", default: "3" },
    /** Kubernetes namespaces. */
    namespaces: { type: "string", default: "20" },
    nodes: { type: "string", default: "30" },
    /** The measurement begins when the operator has written nothing for so long. */
    "settle-seconds": { type: "string", default: "60" },
    minutes: { type: "string", default: "5" },
    /** Megabytes of the operator's peak, and percent of a core while idle. */
    "memory-max": { type: "string", default: "256" },
    "cpu-max": { type: "string", default: "2" },
    kubeconfig: { type: "string" },
    /** The operator's TypeScript instead of what its image holds. */
    source: { type: "boolean", default: false },
    /** Instead of those of the Dockerfile, with spaces between them. */
    "node-arguments": { type: "string" },
    /** Keeps the operator's log and program. */
    keep: { type: "boolean", default: false },
  },
});

const NAMESPACE = "lockstep-system";
const PROGRESS_MS = 15_000;
const READY_MS_MAX = 30 * 60_000;
const QUIET_MS_MAX = 10 * 60_000;
/** Per cell and minute. On a machine that has too much to do, a member is silent for a moment, and that is told. */
const WRITES_MAX = 0.1;
const cells = Number(values.cells);
const voters = ([1, 3, 5] as const).find((count) => String(count) === values.voters);
if (voters === undefined) throw new TypeError("--voters is 1, 3 or 5");
const folder = mkdtempSync(join(tmpdir(), "lockstep-fleet-"));
/** All of 127/8 is this machine; each fleet has 65,536 addresses of it, with the ports that members really use. */
const loopback = 16 + (process.pid % 200);

const broken: string[] = [];
const api: FleetApi = await (values.kubeconfig === undefined ? simulatedApi() : realApi(values.kubeconfig));
const members = new Members({ loopback, violate: (law) => broken.push(law) });
const world = new World({
  ...{ api, members, cells, voters, operatorNamespace: NAMESPACE },
  namespaces: Math.min(cells, Number(values.namespaces)),
  nodes: Number(values.nodes),
  report: (message, error) => console.error(`${message}: ${error.message}`),
});
const operator = new OperatorProcess({
  ...{ api, namespace: NAMESPACE, folder, fromSource: values.source },
  nodeArguments: values["node-arguments"]?.split(" "),
  opsHost: `127.${String(loopback)}.0.1`,
});

try {
  process.exitCode = await Promise.race([run(), operator.untilEnd(), untilSignal()]);
} finally {
  await operator.stop();
  await world.stop();
  members.close();
  await api.close();
  if (values.keep) console.log(`log and program of the operator: ${folder}`);
  else rmSync(folder, { recursive: true });
}

async function run(): Promise<number> {
  await world.start();
  const startedMs = performance.now();
  const ready = world.whenReady(startedMs, READY_MS_MAX);
  await world.createCells();
  const progress = setInterval(() => tellProgress(startedMs), PROGRESS_MS);
  const times = [...(await ready.finally(() => clearInterval(progress)))]
    .map((ms) => ms / 1_000)
    .sort((a, b) => a - b);
  const { usage } = await sample();
  console.log(
    `${values.cells} cells of ${values.voters} voters, ${values.nodes} nodes, ${api.kind}: all Ready after ${(times.at(-1) ?? 0).toFixed(1)} s ` +
      `(the median cell after ${(times[Math.floor(times.length / 2)] ?? 0).toFixed(1)} s); ` +
      `the operator took ${usage.cpuSeconds.toFixed(1)} s of CPU and ${megabytes(usage.residentBytesMax)} at most`,
  );
  await untilQuiet(Number(values["settle-seconds"]) * 1_000);
  console.error(`nothing is written any more; measured for ${values.minutes} min ...`);
  const before = await sample();
  await pause(Number(values.minutes) * 60_000);
  const idle = measured(before, await sample());
  console.log(
    `idle for ${idle.minutes.toFixed(1)} min; load average ${loadavg()
      .map((load) => load.toFixed(1))
      .join(" ")}`,
  );
  console.log(table(idle, { cells, members: members.count }));
  const passed = limitsPassed(idle);
  for (const limit of passed) console.log(`✗ ${limit}`);
  return passed.length === 0 ? 0 : 1;
}

function tellProgress(startedMs: number): void {
  const seconds = ((performance.now() - startedMs) / 1_000).toFixed(0);
  console.error(
    `${seconds.padStart(5)} s: ${String(cells - world.unready())} of ${String(cells)} cells are Ready`,
  );
}

async function untilQuiet(quietMs: number): Promise<void> {
  const startedMs = performance.now();
  for (let before = await sample(); ;) {
    await pause(quietMs);
    const after = await sample();
    if (writesOf(measured(before, after)) === 0) return;
    if (performance.now() - startedMs > QUIET_MS_MAX) throw new Error("the operator never stops writing");
    before = after;
  }
}

async function sample(): Promise<Sample> {
  const metrics = await operator.metrics();
  return { usage: operator.usage(), requests: api.requests(), metrics, adminCalls: members.calls };
}

function limitsPassed(idle: Measured): readonly string[] {
  const memory = Number(values["memory-max"]);
  const cpu = Number(values["cpu-max"]);
  const unready = world.unready();
  const writes = writesOf(idle) / cells / idle.minutes;
  return [
    ...broken,
    ...(idle.residentBytesMax > memory * 1e6 ? [`more than ${String(memory)} MB of memory`] : []),
    ...(idle.cpu > cpu ? [`more than ${String(cpu)} % of a core`] : []),
    ...(writes > WRITES_MAX
      ? [`${writes.toFixed(2)} writes per cell and minute though nothing changed`]
      : []),
    ...(unready > 0 ? [`${String(unready)} cells are not Ready any more`] : []),
  ];
}

/** A fleet that is called off leaves no operator behind. */
function untilSignal(): Promise<never> {
  return new Promise((_resolve, reject) => {
    for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => reject(new Error(signal)));
  });
}

/** The time that is measured, or left out of it. */
function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
