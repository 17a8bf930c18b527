// The apiserver is away, comes back, and answers badly: cells do not notice, and changes still end well.
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { runningDaemon, startDaemon, stopDaemon } from "../daemon.ts";
import { FaultProxy, seededRandom } from "../fault-proxy.ts";
import type { FaultRates } from "../fault-proxy.ts";
import { APISERVER_URL, pkiOf } from "../layout.ts";
import { describePhase } from "../load-client.ts";
import type { LoadClient } from "../load-client.ts";
import { Cell, installOperator, OPERATOR_NAMESPACE } from "../lockstep.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import { hasMember, namesIn, runningPods, scaleOperator, secondsSince, startSparedLoad } from "./steps.ts";

const AWAY_MS = 60_000;
const GAP_MS_MAX = 1_000;
const CHANGE_MS = 420_000;
const OPERATOR_DAEMON = "operator-behind-proxy";
/** A pass of the operator asks about ten times: with more faults hardly one would come to its end. */
const RATES: FaultRates = {
  conflict: 0.02,
  gone: 0.02,
  throttled: 0.02,
  broken: 0.02,
  slow: 0.05,
  "lost-answer": 0.02,
  "late-events": 0.3,
  silence: 0.3,
};

interface Parts {
  readonly context: ScenarioContext;
  readonly cell: Cell;
  readonly load: LoadClient;
}

async function awayForAMinute({ context, cell, load }: Parts): Promise<void> {
  const { cluster, signal } = context;
  const before = await runningPods(context, cell);
  await load.mark("apiserver away");
  await cluster.controlPlane.stop("kube-apiserver");
  await delay(AWAY_MS, undefined, { signal });
  await cluster.controlPlane.start("kube-apiserver", signal);
  const report = await load.report();
  context.say(describePhase(report));
  assert.ok(report.current.seconds >= AWAY_MS / 1000);
  assert.deepEqual([report.current.failed, report.current.unknown], [0, 0], "the cell did not notice");
  assert.ok(report.current.longestWriteGapMs <= GAP_MS_MAX);
  await cluster.untilReady(cluster.nodes, signal);
  await cell.untilReady();
  assert.deepEqual(await runningPods(context, cell), before, "no member was restarted");
  await load.mark("apiserver restarted");
  await cluster.controlPlane.restart("kube-apiserver");
  await cell.untilReady();
  assert.deepEqual(await runningPods(context, cell), before);
  context.say(describePhase(await load.report()));
}

/** The access of the operator's own ServiceAccount, through the proxy: its real roles decide. */
async function writeKubeconfig(context: ScenarioContext, url: string): Promise<string> {
  const { cluster, artifacts } = context;
  const accounts = await namesIn(context, "serviceaccounts", { namespace: OPERATOR_NAMESPACE });
  const account = accounts.find((name) => name.includes("lockstep")) ?? "";
  const token = await cluster.kubectl([
    ...["create", "token", account, "--duration=2h", "--namespace", OPERATOR_NAMESPACE],
  ]);
  const name = "behind-proxy";
  const file = join(artifacts, "operator.kubeconfig");
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [
      { name, cluster: { server: url, "certificate-authority": join(pkiOf(cluster.layout), "ca.crt") } },
    ],
    users: [{ name, user: { token: token.trim() } }],
    contexts: [{ name, context: { cluster: name, user: name, namespace: OPERATOR_NAMESPACE } }],
    "current-context": name,
  };
  writeFileSync(file, JSON.stringify(config), { mode: 0o600 });
  return file;
}

/** An operator from source, as a process of this machine, which is started anew whenever it ends. */
function keepOperator({ cluster, artifacts }: ScenarioContext, kubeconfig: string): () => Promise<number> {
  const { layout } = cluster;
  let starts = 0;
  const start = (): void => {
    if (runningDaemon(layout.run, OPERATOR_DAEMON) !== undefined) return;
    starts += 1;
    startDaemon(layout.run, {
      name: OPERATOR_DAEMON,
      command: process.execPath,
      args: [
        join(layout.repository, "operator/src/main.ts"),
        `--kubeconfig=${kubeconfig}`,
        `--namespace=${OPERATOR_NAMESPACE}`,
        "--ops=127.0.0.1:0",
        "--log-level=debug",
      ],
      logFile: join(artifacts, "operator.log"),
    });
  };
  start();
  const keeper = setInterval(start, 1_000);
  return async () => {
    clearInterval(keeper);
    await stopDaemon(layout.run, OPERATOR_DAEMON, 20_000);
    return starts;
  };
}

async function changesBehindFaults({ context, cell, load }: Parts): Promise<void> {
  const read = (file: string): string => readFileSync(join(pkiOf(context.cluster.layout), file), "utf8");
  const seed = randomInt(2 ** 31);
  context.say(`faults are drawn from seed ${String(seed)}`);
  await scaleOperator(context, 0);
  const proxy = await FaultProxy.start({
    upstream: APISERVER_URL,
    tls: { cert: read("apiserver.crt"), key: read("apiserver.key"), ca: read("ca.crt") },
    rates: RATES,
    random: seededRandom(seed),
  });
  context.finally(() => proxy.close());
  const stop = keepOperator(context, await writeKubeconfig(context, proxy.url));
  context.finally(() => stop().then(() => undefined));

  for (const voters of [1, 3]) {
    await load.mark(`${String(voters)} voters behind faults`);
    const started = performance.now();
    await cell.patch({ voters });
    await cell.until(
      `${String(voters)} voters`,
      ({ status }) =>
        status?.voters === voters && status.readyVoters === voters && status.operation === undefined,
      CHANGE_MS,
    );
    context.say(`${String(voters)} voters ${secondsSince(started)} after the spec`);
    context.say(describePhase(await load.report()));
  }
  await load.mark("replacement behind faults");
  const { status } = await cell.get();
  const old = status?.leader ?? "";
  const started = performance.now();
  await cell.request({ action: "Replace", member: old }, CHANGE_MS);
  const after = await cell.untilReady(CHANGE_MS);
  assert.ok(!hasMember(after, old));
  context.say(`${old} replaced in ${secondsSince(started)}`);
  context.say(describePhase(await load.report()));
  await context.until(
    "three CellMembers are left",
    async () => (await namesIn(context, "cellmembers")).length === 3,
  );
  await cell.checkAtRest();
  const starts = await stop();
  context.say(
    `${String(proxy.requests)} requests, injected ${JSON.stringify(proxy.injected)}; the operator was started ${String(starts)} times`,
  );
  await scaleOperator(context, 2);
}

export const apiserver: Scenario = {
  name: "apiserver",
  about:
    "stopped for a minute, restarted, and behind a proxy that refuses, delays and loses, while a cell changes",
  ci: false,
  minutes: 30,
  run: async (context) => {
    await installOperator(context);
    const { cell } = await Cell.create(context);
    const parts = { context, cell, load: await startSparedLoad(context, cell) };
    await awayForAMinute(parts);
    await changesBehindFaults(parts);
    await parts.load.verify();
  },
};
