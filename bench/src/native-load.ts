// Puts one kind of load on a cell through the native client and prints one JSON line of figures, as bench/etcdload
// does for etcd. A process of its own, so that both generators stand in the same place.
import { connect, type Client } from "@lockstep/client";
import { writeSync } from "node:fs";
import { parseArgs } from "node:util";
import { setTimeout as delay } from "node:timers/promises";
import type { LoadReport } from "./load-report.ts";
import type { LoadResult, LoadSettings } from "./native/load.ts";
import { LOADS } from "./native/workloads.ts";

const LEADER_MS_MAX = 15_000;
const POLL_MS = 10;

const USAGE = `native-load: load on a Lockstep cell, one JSON line of figures

  node bench/src/native-load.ts --endpoints 127.0.0.1:2379 --mode put --clients 64 --seconds 5

  --mode NAME          ${Object.keys(LOADS).join(", ")}
  --clients N          operations in flight (default 64)
  --seconds N          time to measure (default 5)         --warmup N        load before that, seconds (default 1)
  --keys N             key space (default 100000)          --value-bytes N   size of a value (default 256)
  --leases N           leases, or watchers (default 10000) --read-percent N  share of reads in mixed (default 80)
  --first-key N        fill: where to begin (default 0)    --ttl N           expiry: seconds a session lives (default 60)
  --watches N          scale: watches at the end           --connections N   scale, storm: connections (default 1)
  --kill-pid N         failover, storm: whom to kill       --server-pids N,N scale: whose memory to read
  --metrics-url URL    scale: of the leader, to see that its log does not grow
  --identity KIND      client (default): every write carries an id that makes retries safe; none: it does not
  --endpoints LIST     host:port of members, comma separated
`;

interface Arguments {
  readonly identity: "client" | "none";
  readonly settings: LoadSettings;
}

function parseArguments(): Arguments {
  const { values } = parseArgs({
    options: {
      endpoints: { type: "string", default: "127.0.0.1:2379" },
      mode: { type: "string", default: "put" },
      clients: { type: "string", default: "64" },
      keys: { type: "string", default: "100000" },
      "value-bytes": { type: "string", default: "256" },
      "first-key": { type: "string", default: "0" },
      leases: { type: "string", default: "10000" },
      watches: { type: "string", default: "0" },
      ttl: { type: "string", default: "60" },
      connections: { type: "string", default: "1" },
      "kill-pid": { type: "string", default: "0" },
      "server-pids": { type: "string", default: "" },
      "metrics-url": { type: "string", default: "" },
      "read-percent": { type: "string", default: "80" },
      warmup: { type: "string", default: "1" },
      seconds: { type: "string", default: "5" },
      identity: { type: "string", default: "client" },
    },
  });
  const { identity } = values;
  if (identity !== "client" && identity !== "none") throw new TypeError("--identity is client or none");
  const settings: LoadSettings = {
    mode: values.mode,
    clients: Number(values.clients),
    keys: Number(values.keys),
    valueBytes: Number(values["value-bytes"]),
    firstKey: Number(values["first-key"]),
    leases: Number(values.leases),
    watches: Number(values.watches),
    ttlSeconds: Number(values.ttl),
    connections: Number(values.connections),
    killPid: Number(values["kill-pid"]),
    serverPids: values["server-pids"]
      .split(",")
      .filter((pid) => pid !== "")
      .map(Number),
    metricsUrl: values["metrics-url"],
    endpoints: values.endpoints.split(","),
    readPercent: Number(values["read-percent"]),
    warmupSeconds: Number(values.warmup),
    measureSeconds: Number(values.seconds),
  };
  for (const [name, value] of Object.entries(settings)) {
    if (typeof value === "number" && !(value >= 0)) throw new TypeError(`${name} needs a number`);
  }
  return { identity, settings };
}

/** The client follows the leader by itself; the load starts when it has arrived there. */
async function untilAtLeader(client: Client): Promise<void> {
  const limit = performance.now() + LEADER_MS_MAX;
  for (;;) {
    const { info } = client.channel;
    if (info?.leader?.memberId === info?.memberId && info !== undefined) return;
    if (performance.now() > limit) throw new Error("the client did not get to a leader in time");
    await delay(POLL_MS);
  }
}

function reportOf({ mode, clients }: LoadSettings, { tally, seconds, figures }: LoadResult): LoadReport {
  const { latencies, operations, completed, errors, firstError } = tally;
  const { user, system } = process.cpuUsage();
  return {
    mode,
    clients,
    connections: 1,
    operations,
    completed,
    seconds,
    operationsPerSecond: operations / seconds,
    errors,
    ...(firstError === undefined ? {} : { firstError }),
    p50Ms: latencies.quantileMs(0.5),
    p90Ms: latencies.quantileMs(0.9),
    p99Ms: latencies.quantileMs(0.99),
    p999Ms: latencies.quantileMs(0.999),
    maxMs: latencies.maxMs,
    cpuSeconds: (user + system) / 1e6,
    ...(figures === undefined ? {} : { figures }),
  };
}

async function main(): Promise<void> {
  const { identity, settings } = parseArguments();
  const load = LOADS[settings.mode];
  if (load === undefined) throw new TypeError(`there is no mode "${settings.mode}"`);
  const client = await connect({ endpoints: settings.endpoints, identity });
  await untilAtLeader(client);
  const result = await load(client.channel, settings);
  writeSync(1, `${JSON.stringify(reportOf(settings, result))}\n`);
  client.close();
  // Some modes leave streams behind whose end nobody needs to see.
  process.exit(0);
}

try {
  await main();
} catch (error) {
  console.error(error instanceof TypeError ? `${error.message}\n\n${USAGE}` : error);
  process.exit(1);
}
