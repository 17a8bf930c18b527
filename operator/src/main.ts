// The operator's program: the only place with argv, the environment, signals and the real clock.
import { Command, InvalidArgumentError } from "commander";
import { pino } from "pino";
import type { Logger } from "pino";
import { collectDefaultMetrics, Registry } from "prom-client";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { durationMs } from "./api/duration.ts";
import { FIELD_MANAGER } from "./api/names.ts";
import { createCertificateKeeper } from "./control/certificate-keeper.ts";
import { Controller } from "./control/controller.ts";
import type { ControllerParts } from "./control/controller.ts";
import { observeCells } from "./control/metrics.ts";
import {
  createHttpTransport,
  createKubeClient,
  createPrometheusMetrics,
  Elector,
  EventRecorder,
  inClusterAccess,
  kubeconfigAccess,
  REAL_RUNTIME,
  Rest,
  TokenBucket,
} from "./kube/index.ts";
import type { ClusterAccess, Runtime } from "./kube/index.ts";
import { startOpsServer } from "./ops.ts";

/** 1: could not start. 3: lost the lease: whoever runs it starts it anew, as a stand-by. */
const EXIT = { ok: 0, failed: 1, lost: 3 } as const;
const STOP_MS_MAX = 20_000;
const EVENTS_GRACE_MS = 2_000;
const PROBLEM_MS_MAX = 15 * 60_000;
/** For what no watch tells: certificates that end, a member that hangs. Most of what an idle cell costs is these looks. */
const STEADY_LOOK_MS = 60_000;
/** Calls a second on average, and at once: far above what a fleet at rest needs, far below what hurts an apiserver. */
const CALLS_PER_SECOND = 100;
const CALLS_BURST = 200;
/**
 * The resolution of the event loop's delay, which the gauge shows at rest: the default of 10 ms takes half a percent of a
 * core for looking alone.
 */
const LOOP_DELAY_MS = 100;
const CONTROLLER = "lockstep.dev/operator";

interface Flags {
  readonly defaultCellImage: string;
  readonly watchNamespaces?: readonly string[];
  readonly namespace?: string;
  readonly identity?: string;
  readonly leaseName: string;
  readonly leaseDuration: number;
  readonly renewDeadline: number;
  readonly retryPeriod: number;
  readonly maxConcurrentRolls: number;
  readonly workers: number;
  readonly ops: { readonly host: string; readonly port: number };
  readonly logLevel: string;
  readonly networkPolicies?: boolean;
  readonly kubeconfig?: string;
}

const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as {
  readonly version: string;
};
const { env } = process;

const program = new Command("lockstep-operator")
  .description(
    "Keeps Lockstep cells as CoordinationCell and Namespace objects of a Kubernetes cluster want them.",
  )
  .version(version)
  .showHelpAfterError()
  .option(
    "--default-cell-image <image>",
    "image of members whose cell names none (LOCKSTEP_DEFAULT_CELL_IMAGE)",
    env["LOCKSTEP_DEFAULT_CELL_IMAGE"] ?? `lockstep-cell:${version}`,
  )
  .option("--watch-namespaces <names>", "only these Kubernetes namespaces, with commas (default: all)", names)
  .option("--namespace <name>", "the operator's own namespace (POD_NAMESPACE; default: the access's own)")
  .option("--identity <name>", "of this process, unique at any time (POD_NAME; default: random)")
  .option("--lease-name <name>", "Lease of the one that works while others stand by", "lockstep-operator")
  .option(
    "--lease-duration <duration>",
    "others may take over after so long without a renewal",
    duration,
    15_000,
  )
  .option(
    "--renew-deadline <duration>",
    "without a renewal for so long, it stops by itself",
    duration,
    10_000,
  )
  .option("--retry-period <duration>", "between renewals", duration, 2_000)
  .option("--max-concurrent-rolls <count>", "cells that restart their members at the same time", count, 1)
  .option("--workers <count>", "cells looked at at once", count, 10)
  .option("--ops <host:port>", "probes and metrics", address, { host: "0.0.0.0", port: 8081 })
  .option("--log-level <level>", "debug, info, warn or error", "info")
  .option("--network-policies", "make a NetworkPolicy for each cell")
  .option("--kubeconfig <file>", "outside a cluster (default: the pod's service account)")
  .action(run);

program.parseAsync().catch((error: unknown) => {
  process.stderr.write(`lockstep-operator: ${describe(error)}\n`);
  process.exit(EXIT.failed);
});

async function run(flags: Flags): Promise<void> {
  const logger = pino({ level: flags.logLevel, base: {} });
  process.on("uncaughtException", (error) => fail(logger, error));
  process.on("unhandledRejection", (reason) => fail(logger, reason));
  const access = await accessOf(flags);
  const namespace = flags.namespace ?? env["POD_NAMESPACE"] ?? access.namespace;
  if (namespace === undefined) {
    throw new TypeError("no namespace of its own is known: give --namespace or POD_NAMESPACE");
  }
  const identity = `${flags.identity ?? env["POD_NAME"] ?? "operator"}_${randomUUID()}`;
  await start(flags, { logger, access, namespace, identity });
}

interface Surroundings {
  readonly logger: Logger;
  readonly access: ClusterAccess;
  readonly namespace: string;
  readonly identity: string;
}

async function start(flags: Flags, around: Surroundings): Promise<void> {
  const { logger, access, namespace, identity } = around;
  const runtime = REAL_RUNTIME;
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LOOP_DELAY_MS });
  const metrics = createPrometheusMetrics(registry, "lockstep_operator_");
  const transport = createHttpTransport({ access, userAgent: `lockstep-operator/${version}` });
  let working: Promise<void> = Promise.resolve();
  const elector = new Elector({
    ...{ transport, runtime, metrics, namespace, identity, fieldManager: FIELD_MANAGER },
    name: flags.leaseName,
    durations: {
      leaseMs: flags.leaseDuration,
      renewDeadlineMs: flags.renewDeadline,
      retryMs: flags.retryPeriod,
    },
    report: (message, error) => logger.info({ reason: error?.message }, message),
    onStarted: (signal) => {
      logger.info({ identity }, "leading");
      working = controller.run(signal);
      working.catch((error: unknown) => fail(logger, error));
    },
    onLost: () => {
      logger.error({ identity }, "the lease is lost; another operator may work now");
      process.exit(EXIT.lost);
    },
  });
  const bucket = new TokenBucket({ rate: CALLS_PER_SECOND, burst: CALLS_BURST, runtime });
  const rest = new Rest({ transport, runtime, bucket, gate: elector.gate, metrics });
  const kube = createKubeClient({ rest, fieldManager: FIELD_MANAGER });
  const instance = identity.slice(0, 128);
  const events = new EventRecorder({ client: kube, runtime, controller: CONTROLLER, instance, metrics });
  const controller = createController(flags, around, { rest, kube, runtime, events, metrics });
  observeCells(registry, controller);
  const ops = await startOpsServer({
    ...flags.ops,
    registry,
    unhealthy: longProblem(controller, runtime),
    // A stand-by is ready when it could take over at once.
    notReady: () => controller.problem(),
  });
  const stopping = stopOnSignals(logger, async () => {
    // The lease goes back when the passes under way have ended: only then may another one begin.
    await elector.stop();
    await working;
    await events.stop(EVENTS_GRACE_MS);
    await controller.stop();
    await Promise.all([ops.close(), transport.close()]);
  });
  logger.info({ version, namespace, watches: flags.watchNamespaces ?? "all namespaces" }, "starting");
  try {
    await controller.startInformers(stopping);
  } catch (error) {
    // Stopped before the first lists had come.
    if (stopping.aborted) return;
    throw error;
  }
  elector.start();
}

function createController(
  flags: Flags,
  { logger, namespace }: Surroundings,
  parts: Pick<ControllerParts, "rest" | "kube" | "runtime" | "events" | "metrics">,
): Controller {
  const { kube, runtime } = parts;
  const ownPods = { "app.kubernetes.io/name": "lockstep", "app.kubernetes.io/component": "operator" };
  return new Controller({
    ...parts,
    certificates: createCertificateKeeper({
      kube,
      wallMs: () => runtime.wallMs(),
      monotonicMs: () => runtime.monotonicMs(),
      operatorNamespace: namespace,
    }),
    log: (level, message, fields) => logger[level](fields ?? {}, message),
    settings: {
      defaultImage: flags.defaultCellImage,
      networkPoliciesFor: flags.networkPolicies === true ? { namespace, labels: ownPods } : undefined,
      watchNamespaces: flags.watchNamespaces,
      maxConcurrentRolls: flags.maxConcurrentRolls,
      workers: flags.workers,
      steadyLookMs: STEADY_LOOK_MS,
    },
  });
}

/**
 * An apiserver that is away comes back, and informers with it. One that was restored from a backup counts from an earlier
 * number: informers, which never go back, would wait for ever, and a new process does not.
 */
function longProblem(controller: Controller, runtime: Runtime): () => string | undefined {
  let sinceMs: number | undefined;
  return () => {
    const problem = controller.problem();
    sinceMs = problem === undefined ? undefined : (sinceMs ?? runtime.monotonicMs());
    const isLong = sinceMs !== undefined && runtime.monotonicMs() - sinceMs > PROBLEM_MS_MAX;
    return isLong ? problem : undefined;
  };
}

/** @returns aborted when a signal asks to stop. */
function stopOnSignals(logger: Logger, close: () => Promise<void>): AbortSignal {
  const stopping = new AbortController();
  const stop = (why: string): void => {
    if (stopping.signal.aborted) return;
    stopping.abort(new Error(why));
    logger.info({ why }, "stopping");
    setTimeout(() => process.exit(EXIT.failed), STOP_MS_MAX).unref();
    close().then(
      () => process.exit(EXIT.ok),
      (error: unknown) => fail(logger, error),
    );
  };
  process.on("SIGTERM", () => stop("SIGTERM"));
  process.on("SIGINT", () => stop("SIGINT"));
  return stopping.signal;
}

function accessOf({ kubeconfig }: Flags): Promise<ClusterAccess> {
  const path = kubeconfig ?? env["KUBECONFIG"];
  const host = env["KUBERNETES_SERVICE_HOST"];
  if (kubeconfig === undefined && host !== undefined) {
    return inClusterAccess({ host, port: env["KUBERNETES_SERVICE_PORT"] ?? "443" });
  }
  if (path === undefined) {
    throw new TypeError("it runs in no cluster: give --kubeconfig or KUBECONFIG");
  }
  return kubeconfigAccess({ source: { path } });
}

function fail(logger: Logger, error: unknown): never {
  logger.fatal({ err: error }, "the operator stops");
  logger.flush();
  process.exit(EXIT.failed);
}

/** A message with those of its causes: the last one is often what a person can act on. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message}: ${describe(error.cause)}`;
}

function names(text: string): readonly string[] {
  const given = text.split(",").filter((name) => name !== "");
  if (given.length === 0 || given.some((name) => !/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(name))) {
    throw new InvalidArgumentError("names of Kubernetes namespaces, with commas");
  }
  return [...new Set(given)];
}

function duration(text: string): number {
  try {
    return durationMs(text);
  } catch {
    throw new InvalidArgumentError("a duration such as 15s");
  }
}

function count(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError("a whole number from 1 on");
  return value;
}

function address(text: string): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host === undefined || port > 65_535) throw new InvalidArgumentError("HOST:PORT");
  return { host, port };
}
