import { Channel, REAL_RUNTIME } from "@lockstep/client";
import { describe, type Load } from "./load.ts";
import { waitUntil } from "./operations.ts";
import { PooledTransport } from "./pooled-transport.ts";
import { Tally } from "./tally.ts";

/** Streams that are opened at once while the storm is prepared. */
const OPENING_MAX = 500;
const SET_UP_MS_MAX = 300_000;
const SETTLE_MS = 2_000;
const DEADLINE_MS = 5_000;
const KEY = Buffer.from("/bench/00000000");

/** One client with a stream of its own. */
class StormClient {
  readonly channel: Channel;

  constructor(transport: PooledTransport, endpoints: readonly string[]) {
    this.channel = new Channel({
      endpoints,
      namespace: "",
      epoch: 0,
      deadlineMs: DEADLINE_MS,
      identity: "none",
      requestsMax: 16,
      pendingBytesMax: 65_536,
      transport,
      runtime: REAL_RUNTIME,
    });
  }

  get isAtLeader(): boolean {
    const { info } = this.channel;
    return info?.leader !== undefined && info.leader.memberId === info.memberId;
  }

  /** Asks again until a linearizable read is answered. */
  read(onAnswer: () => void, onError: (problem: string) => void): void {
    this.channel.getWith(KEY, (error) => {
      if (error === undefined) {
        onAnswer();
        return;
      }
      onError(describe(error));
      setTimeout(() => this.read(onAnswer, onError), 100);
    });
  }
}

async function openAll(transport: PooledTransport, settings: Parameters<Load>[1]): Promise<StormClient[]> {
  const clients: StormClient[] = [];
  let ready = 0;
  for (let i = 0; i < settings.clients; i += 1) {
    await waitUntil("streams to open", SET_UP_MS_MAX, () => clients.length - ready < OPENING_MAX);
    const client = new StormClient(transport, settings.endpoints);
    clients.push(client);
    client.read(
      () => (ready += 1),
      () => undefined,
    );
  }
  await waitUntil("streams to open", SET_UP_MS_MAX, () => ready === clients.length);
  await waitUntil("streams to reach the leader", SET_UP_MS_MAX, () => clients.every((one) => one.isAtLeader));
  return clients;
}

/**
 * `clients` clients, each with its own stream, over at most `connections` connections to a member. The leader,
 * `killPid`, is killed; latency is from there to each client's next linearizable read. Nothing tells a client but the
 * loss of its stream.
 */
export const storm: Load = async (_channel, settings) => {
  if (settings.killPid === 0) throw new TypeError("storm needs --kill-pid");
  const transport = new PooledTransport(Math.max(1, settings.connections));
  const clients = await openAll(transport, settings);
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  const tally = new Tally({ fromMs: 0, untilMs: Infinity });
  process.kill(settings.killPid, "SIGKILL");
  const begin = performance.now();
  for (const client of clients) {
    client.read(
      () => tally.success(begin, performance.now(), 1),
      (problem) => tally.failure(problem),
    );
  }
  await waitUntil("all clients to be served again", settings.measureSeconds * 1000, () => {
    return tally.operations === clients.length;
  });
  return { tally, seconds: (performance.now() - begin) / 1000 };
};
