/** One kind of load of the table suite, put on every system in the same way. */
export interface Workload {
  readonly name: string;
  readonly title: string;
  /** The generators' word for it. */
  readonly mode: string;
  /** Closed-loop clients, each with one operation in flight. */
  readonly clients: number;
  /**
   * Connections of the etcd generator: of 1, 4 and 10 the number with which etcd did most on a machine of 2 cores.
   * The native client always has one.
   */
  readonly etcdConnections: number;
  /** Leases, sessions or watchers; absent: 10,000. */
  readonly leases?: number;
  /** What is counted, where it is not plain operations. */
  readonly counts?: string;
  /** In the first round only: it takes minutes. */
  readonly once?: boolean;
  /** Also driven through a cell's etcd API, after the native loads of a round. */
  readonly overEtcdApi?: boolean;
}

/** In the order in which they run. `fill` is first: it writes every key, so that reads find theirs. */
export const WORKLOADS: readonly Workload[] = [
  {
    name: "fill",
    title: "fill, 64 puts a transaction, 16 in flight",
    mode: "fill",
    clients: 16,
    etcdConnections: 10,
    counts: "keys; latency is a transaction's",
  },
  { name: "put-1", title: "put, 1 in flight", mode: "put", clients: 1, etcdConnections: 1 },
  { name: "put-64", title: "put, 64 in flight", mode: "put", clients: 64, etcdConnections: 1 },
  {
    name: "put-1000",
    title: "put, 1,000 in flight",
    mode: "put",
    clients: 1000,
    etcdConnections: 10,
    overEtcdApi: true,
  },
  {
    name: "get",
    title: "linearizable get, 1,000 in flight",
    mode: "get",
    clients: 1000,
    etcdConnections: 10,
  },
  {
    name: "serializable",
    title: "serializable get, 1,000 in flight",
    mode: "serializable",
    clients: 1000,
    etcdConnections: 10,
  },
  {
    name: "mixed",
    title: "80 % linearizable gets, 20 % puts, 1,000",
    mode: "mixed",
    clients: 1000,
    etcdConnections: 10,
  },
  {
    name: "txnlock",
    title: "lock + unlock by transaction, 256 clients",
    mode: "txnlock",
    clients: 256,
    etcdConnections: 10,
    counts: "pairs of lock and unlock",
  },
  {
    name: "mutex",
    title: "contended fair mutex, 4 contenders a lock, 256 clients",
    mode: "mutex",
    clients: 256,
    etcdConnections: 10,
    counts: "pairs of lock and unlock, in queue order; latency has the wait in the queue in it",
  },
  { name: "grant", title: "lease grant, 256 in flight", mode: "grant", clients: 256, etcdConnections: 1 },
  {
    name: "renew",
    title: "lease renewals, 10,000 leases",
    mode: "renew",
    clients: 1000,
    etcdConnections: 4,
    counts: "leases renewed",
  },
  {
    name: "watch-1000",
    title: "watch fan-out, 1,000 watchers of one key",
    mode: "watch",
    clients: 1000,
    etcdConnections: 1,
    leases: 1_000,
    counts: "events delivered, of one writer's puts; latency is from put to delivery",
  },
  {
    name: "watch-10000",
    title: "watch fan-out, 10,000 watchers of one key",
    mode: "watch",
    clients: 1000,
    etcdConnections: 1,
    leases: 10_000,
    counts: "events delivered, of one writer's puts; latency is from put to delivery",
  },
  {
    name: "expiry",
    title: "mass expiry, 100,000 sessions end at once, beside 16 puts in flight",
    mode: "expiry",
    clients: 16,
    etcdConnections: 4,
    leases: 100_000,
    counts: "foreground puts while the sessions end; the figures below say how long that took",
    once: true,
  },
];

/**
 * @param only names, or what stands before the dash (`put`); undefined: all. `fill` always runs, because the others
 *   need its keys.
 * @throws TypeError for a name that does not exist.
 */
export function selectWorkloads(only: readonly string[] | undefined): readonly Workload[] {
  if (only === undefined) return WORKLOADS;
  const matches = (workload: Workload, wanted: string): boolean =>
    workload.name === wanted || workload.name.startsWith(`${wanted}-`);
  for (const wanted of only) {
    if (!WORKLOADS.some((workload) => matches(workload, wanted))) {
      const names = WORKLOADS.map((workload) => workload.name).join(", ");
      throw new TypeError(`there is no workload "${wanted}"; there are ${names}`);
    }
  }
  return WORKLOADS.filter(
    (workload) => workload.name === "fill" || only.some((wanted) => matches(workload, wanted)),
  );
}
