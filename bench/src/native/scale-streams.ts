import type { FrameLink } from "@lockstep/client";
import { coordination } from "@lockstep/proto";
import { PooledTransport } from "./pooled-transport.ts";

/** Entries of one frame; a cell takes 10,000 of each kind. */
const ENTRIES_MAX = 1_000;
const ANSWER_MS_MAX = 60_000;

type ClientFrame = coordination.ClientFrame;

interface Waiting {
  readonly resolve: (ended: number) => void;
  readonly reject: (error: Error) => void;
}

function frame(fields: Partial<ClientFrame>): Buffer {
  const whole: ClientFrame = {
    namespace: "",
    epoch: 0,
    requests: [],
    renew: undefined,
    watchCreates: [],
    watchCancels: [],
    watchProgress: [],
    ...fields,
  };
  return Buffer.from(coordination.ClientFrame.encode(whole).finish());
}

function watchCreate(watchId: number, key: Buffer): coordination.WatchCreate {
  const range = { key, rangeEnd: undefined };
  return { watchId, range, startRevision: 0, returnPrevious: false, omitPuts: false, omitDeletes: false };
}

/**
 * One stream that stands for a process with many sessions and watches. It keeps nothing of them but their ids: a
 * million of the client library's own objects would be what the load generator spends its memory on.
 */
class ScaleStream {
  readonly leases: string[] = [];
  #link: FrameLink;
  #nextWatchId = 1;
  #created = 0;
  #wanted = 0;
  #nextRenewId = 1;
  #onAllCreated: Waiting | undefined;
  readonly #renewals = new Map<number, Waiting>();
  events = 0;
  problem: Error | undefined;

  constructor(transport: PooledTransport, address: string) {
    this.#link = transport.open(address, {
      frame: (bytes) => this.#onFrame(coordination.ServerFrame.decode(bytes)),
      drained: () => undefined,
      closed: (reason) => this.#fail(reason ?? new Error("a stream was closed by the member")),
    });
  }

  #onFrame(server: coordination.ServerFrame): void {
    const { renewAck, watchCreated, watchEnded, watchEvents } = server;
    for (const one of watchEvents) this.events += one.events.length * (1 + one.alsoWatchIds.length);
    if (watchEnded[0] !== undefined) this.#fail(new Error(`a watch ended: ${JSON.stringify(watchEnded[0])}`));
    this.#created += watchCreated.length;
    if (this.#onAllCreated !== undefined && this.#created >= this.#wanted) {
      this.#onAllCreated.resolve(0);
      this.#onAllCreated = undefined;
    }
    if (renewAck !== undefined) this.#onRenewAck(renewAck);
  }

  #onRenewAck(ack: coordination.RenewAck): void {
    const waiting = this.#renewals.get(ack.id);
    this.#renewals.delete(ack.id);
    if (ack.failure !== undefined)
      waiting?.reject(new Error(`a renewal was refused: ${ack.failure.message}`));
    else waiting?.resolve(ack.remainingMs.filter((left) => left <= 0).length);
  }

  #fail(error: Error): void {
    this.problem ??= error;
    this.#onAllCreated?.reject(error);
    for (const waiting of this.#renewals.values()) waiting.reject(error);
    this.#renewals.clear();
  }

  /** Opens watches of these keys and waits until all stand. */
  async watch(keys: readonly Buffer[]): Promise<void> {
    for (let from = 0; from < keys.length; from += ENTRIES_MAX) {
      if (this.problem !== undefined) throw this.problem;
      const batch = keys.slice(from, from + ENTRIES_MAX);
      this.#wanted += batch.length;
      const all = this.#waitFor((waiting) => (this.#onAllCreated = waiting));
      const watchCreates = batch.map((key) => watchCreate(this.#nextWatchId++, key));
      this.#link.send(frame({ watchCreates }));
      await all;
    }
  }

  /** Renews leases `from` to `from + count` of this stream's. @returns how many of them had ended. */
  renew(from: number, count: number): Promise<number> {
    if (this.problem !== undefined) return Promise.reject(this.problem);
    const id = this.#nextRenewId++;
    const answered = this.#waitFor((waiting) => this.#renewals.set(id, waiting));
    this.#link.send(frame({ renew: { id, leaseIds: this.leases.slice(from, from + count) } }));
    return answered;
  }

  #waitFor(register: (waiting: Waiting) => void): Promise<number> {
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    const limit = setTimeout(() => reject(new Error("no answer in time")), ANSWER_MS_MAX);
    register({ resolve, reject });
    return promise.finally(() => clearTimeout(limit));
  }
}

/** What renewing for some seconds came to. */
export interface Renewed {
  readonly count: number;
  readonly perSecond: number;
  /** Sessions that were gone. */
  readonly ended: number;
}

/** All streams of a run. Work goes to a few of them at a time, so that what is measured is not a burst. */
export class ScaleStreams {
  readonly #streams: readonly ScaleStream[];
  readonly #transport: PooledTransport;
  static readonly #ACTIVE = 16;

  constructor(address: string, count: number) {
    this.#transport = new PooledTransport(count);
    this.#streams = Array.from({ length: count }, () => new ScaleStream(this.#transport, address));
  }

  get events(): number {
    return this.#streams.reduce((sum, one) => sum + one.events, 0);
  }

  /** The first stream that failed says why. */
  get problem(): Error | undefined {
    return this.#streams.find((one) => one.problem !== undefined)?.problem;
  }

  /** Sessions belong to the streams in turn. */
  addLeases(ids: readonly string[]): void {
    ids.forEach((id, index) => this.#streams[index % this.#streams.length]?.leases.push(id));
  }

  async #each(work: (stream: ScaleStream, index: number) => Promise<void>): Promise<void> {
    let next = 0;
    const walk = async (): Promise<void> => {
      for (let index = next++; index < this.#streams.length; index = next++) {
        const stream = this.#streams[index];
        if (stream !== undefined) await work(stream, index);
      }
    };
    await Promise.all(Array.from({ length: ScaleStreams.#ACTIVE }, walk));
  }

  /** Opens watches of the keys, which the streams take in turn. */
  async watch(keyCount: number, keyAt: (index: number) => Buffer): Promise<void> {
    const { length } = this.#streams;
    await this.#each(async (stream, index) => {
      const own = Math.max(0, Math.ceil((keyCount - index) / length));
      await stream.watch(Array.from({ length: own }, (_, nth) => keyAt(index + nth * length)));
    });
  }

  /** Renews every session once. @returns how many had ended. */
  async renewOnce(): Promise<number> {
    let ended = 0;
    await this.#each(async (stream) => {
      for (let from = 0; from < stream.leases.length; from += ENTRIES_MAX) {
        ended += await stream.renew(from, ENTRIES_MAX);
      }
    });
    return ended;
  }

  /** Renews round and round. */
  async renewFor(seconds: number): Promise<Renewed> {
    const begin = performance.now();
    const until = begin + seconds * 1000;
    let renewed = 0;
    let ended = 0;
    const own = this.#streams.filter((stream) => stream.leases.length > 0);
    let next = 0;
    const walk = async (): Promise<void> => {
      for (let turn = next++; performance.now() < until; turn = next++) {
        const stream = own[turn % own.length];
        if (stream === undefined) return;
        const round = Math.floor(turn / own.length);
        const from = (round * ENTRIES_MAX) % stream.leases.length;
        const count = Math.min(ENTRIES_MAX, stream.leases.length - from);
        ended += await stream.renew(from, count);
        renewed += count;
      }
    };
    await Promise.all(Array.from({ length: ScaleStreams.#ACTIVE }, walk));
    return { count: renewed, perSecond: renewed / ((performance.now() - begin) / 1000), ended };
  }

  close(): void {
    this.#transport.closeAll();
  }
}
