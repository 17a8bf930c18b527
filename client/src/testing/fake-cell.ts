import { Server, ServerCredentials, type ServerDuplexStream } from "@grpc/grpc-js";
import * as coordination from "@lockstep/proto/coordination";
import { emptyServerFrame } from "../wire/frames.ts";
import { FakeStore } from "./fake-store.ts";

type Stream = ServerDuplexStream<coordination.ClientFrame, coordination.ServerFrame>;

/** What a test may do to a request before it is executed. */
export type Verdict =
  | { readonly kind: "execute" }
  /** Never answered. */
  | { readonly kind: "swallow" }
  /** Executed, but the answer is lost with the stream. */
  | { readonly kind: "execute-and-break" }
  | { readonly kind: "fail"; readonly failure: Partial<coordination.Failure> };

export interface FakeMemberOptions {
  /** Default: "fake". */
  readonly cellId?: string;
  readonly memberId?: number;
  readonly store?: FakeStore;
  /** Default: this member. */
  readonly leader?: () => coordination.Leader | undefined;
  readonly term?: () => number;
}

interface OpenWatch {
  readonly id: number;
  readonly stream: Stream;
  readonly create: coordination.WatchCreate;
}

export function serverFrame(parts: Partial<coordination.ServerFrame>): coordination.ServerFrame {
  return { ...emptyServerFrame(), ...parts };
}

/** One member of a cell, in memory, over a real grpc-js server on loopback. Members may share a store. */
export class FakeMember {
  readonly store: FakeStore;
  readonly memberId: number;
  readonly frames: coordination.ClientFrame[] = [];
  readonly requests: coordination.Request[] = [];
  readonly streams: Set<Stream> = new Set<Stream>();
  address = "";
  /** False: connections are accepted and never greeted. */
  greets = true;
  /** False: changes of leader are not told. */
  announces = true;
  /** False: renewals are not answered. */
  acknowledgesRenewals = true;
  /** The code that renewals are refused with; undefined: they are not. */
  refusesRenewals: string | undefined = undefined;
  judge: (request: coordination.Request, operation: coordination.Operation) => Verdict = () => ({
    kind: "execute",
  });
  readonly #options: FakeMemberOptions;
  readonly #server = new Server();
  readonly #deaf = new WeakSet<Stream>();
  #cellId: string;
  readonly #watches = new Set<OpenWatch>();
  readonly #unsubscribe: () => void;

  private constructor(options: FakeMemberOptions) {
    this.#options = options;
    this.#cellId = options.cellId ?? "fake";
    this.memberId = options.memberId ?? 1;
    this.store = options.store ?? new FakeStore();
    this.#server.addService(coordination.CoordinationService, {
      channel: (stream: Stream) => this.#onStream(stream),
      execute: (_call: unknown, callback: (error: Error) => void) => callback(new Error("not in the fake")),
      info: (_call: unknown, callback: (error: null, info: coordination.InfoResponse) => void) =>
        callback(null, this.info()),
    });
    this.#unsubscribe = this.store.subscribe({
      events: (events, revision) => this.#onEvents(events, revision),
      leaseEnded: (ended) => {
        for (const stream of this.streams) stream.write(serverFrame({ leaseEnded: [ended] }));
      },
    });
  }

  static async start(options: FakeMemberOptions = {}): Promise<FakeMember> {
    const member = new FakeMember(options);
    await member.#listen("127.0.0.1:0");
    return member;
  }

  info(): coordination.InfoResponse {
    const leader = this.#options.leader === undefined ? this.asLeader() : this.#options.leader();
    return {
      cellId: this.#cellId,
      memberId: this.memberId,
      term: this.#options.term?.() ?? 1,
      revision: this.store.revision,
      leader,
      clientAddresses: [],
    };
  }

  asLeader(): coordination.Leader {
    return { memberId: this.memberId, clientAddress: this.address, httpAddress: "" };
  }

  /** Tells all streams who leads now. */
  announce(): void {
    if (!this.announces) return;
    for (const stream of this.streams) stream.write(serverFrame({ info: this.info() }));
  }

  /** Resets every open stream. */
  breakStreams(): void {
    for (const stream of this.streams) stream.emit("error", new Error("broken by the test"));
    this.streams.clear();
    this.#watches.clear();
  }

  /** Streams from now on are those of another cell. */
  become(cellId: string): void {
    this.#cellId = cellId;
  }

  /** The streams that are open now hear nothing any more, and stay open. */
  deafen(): void {
    for (const stream of this.streams) this.#deaf.add(stream);
  }

  watchCount(): number {
    return this.#watches.size;
  }

  /** Ends every open watch with this failure. */
  endWatches(code: string): void {
    const outcome = coordination.Outcome.NOT_APPLIED;
    const failure = { code, outcome, message: "by the test", compactRevision: 0, retryAfterMs: 0 };
    for (const { id, stream } of this.#watches) {
      const reason = { $case: "failure" as const, value: failure };
      stream.write(serverFrame({ watchEnded: [{ watchId: id, reason }] }));
    }
    this.#watches.clear();
  }

  stop(): void {
    this.#unsubscribe();
    this.#server.forceShutdown();
    this.streams.clear();
    this.#watches.clear();
  }

  async #listen(address: string): Promise<void> {
    const port = await new Promise<number>((resolve, reject) => {
      this.#server.bindAsync(address, ServerCredentials.createInsecure(), (error, bound) => {
        if (error === null) resolve(bound);
        else reject(error);
      });
    });
    this.address = `127.0.0.1:${String(port)}`;
  }

  #onStream(stream: Stream): void {
    this.streams.add(stream);
    const forget = (): void => {
      this.streams.delete(stream);
      for (const watch of this.#watches) if (watch.stream === stream) this.#watches.delete(watch);
    };
    stream.on("error", forget);
    stream.on("cancelled", forget);
    stream.on("close", forget);
    stream.on("end", () => stream.end());
    stream.on("data", (frame: coordination.ClientFrame) => this.#onFrame(stream, frame));
    if (this.greets) stream.write(serverFrame({ info: this.info() }));
  }

  #onFrame(stream: Stream, frame: coordination.ClientFrame): void {
    if (this.#deaf.has(stream)) return;
    this.frames.push(frame);
    const responses: coordination.Response[] = [];
    for (const request of frame.requests) {
      this.requests.push(request);
      const operation = coordination.Operation.decode(request.operation);
      const verdict = this.judge(request, operation);
      switch (verdict.kind) {
        case "swallow":
          continue;
        case "fail":
          responses.push({
            id: request.id,
            result: undefined,
            replayed: false,
            failure: {
              code: "internal",
              outcome: coordination.Outcome.NOT_APPLIED,
              message: "by the test",
              compactRevision: 0,
              retryAfterMs: 0,
              ...verdict.failure,
            },
          });
          continue;
        case "execute":
          responses.push(this.store.request(request, operation));
          continue;
        case "execute-and-break":
          this.store.request(request, operation);
          this.breakStreams();
          return;
      }
    }
    if (responses.length > 0) stream.write(serverFrame({ responses }));
    if (frame.renew !== undefined && this.acknowledgesRenewals) {
      stream.write(
        serverFrame({
          renewAck: {
            id: frame.renew.id,
            revision: this.store.revision,
            ...this.#renewed(frame.renew.leaseIds),
          },
        }),
      );
    }
    for (const id of frame.watchCancels) {
      for (const watch of this.#watches) {
        if (watch.id === id && watch.stream === stream) this.#watches.delete(watch);
      }
    }
    for (const create of frame.watchCreates) this.#onWatchCreate(stream, create);
    for (const watchId of frame.watchProgress) {
      stream.write(serverFrame({ watchProgress: [{ watchId, revision: this.store.revision }] }));
    }
  }

  #renewed(leaseIds: readonly string[]): Pick<coordination.RenewAck, "remainingMs" | "failure"> {
    const code = this.refusesRenewals;
    if (code === undefined) return { remainingMs: this.store.renew(leaseIds), failure: undefined };
    const outcome = coordination.Outcome.NOT_APPLIED;
    const failure = { code, outcome, message: "by the test", compactRevision: 0, retryAfterMs: 0 };
    return { remainingMs: [], failure };
  }

  #onWatchCreate(stream: Stream, create: coordination.WatchCreate): void {
    const { watchId, startRevision } = create;
    if (startRevision !== 0 && startRevision <= this.store.compactRevision) {
      stream.write(
        serverFrame({
          watchEnded: [
            { watchId, reason: { $case: "compactRevision", value: this.store.compactRevision + 1 } },
          ],
        }),
      );
      return;
    }
    const watch = { id: watchId, stream, create };
    this.#watches.add(watch);
    stream.write(serverFrame({ watchCreated: [{ watchId, revision: this.store.revision }] }));
    if (startRevision === 0) return;
    for (const { revision, events } of this.store.history) {
      if (revision >= startRevision) this.#deliver(watch, events, revision);
    }
  }

  #onEvents(events: readonly coordination.WatchEvent[], revision: number): void {
    for (const watch of this.#watches) this.#deliver(watch, events, revision);
  }

  #deliver(watch: OpenWatch, events: readonly coordination.WatchEvent[], revision: number): void {
    const { create } = watch;
    const omitted = create.omitPuts
      ? coordination.WatchEvent_Kind.PUT
      : create.omitDeletes
        ? coordination.WatchEvent_Kind.DELETE
        : undefined;
    const matching = events.filter(
      (event) =>
        create.range !== undefined &&
        event.kv !== undefined &&
        event.kind !== omitted &&
        this.store.covers(create.range, event.kv.key),
    );
    if (matching.length === 0) return;
    watch.stream.write(
      serverFrame({ watchEvents: [{ watchId: watch.id, alsoWatchIds: [], events: matching, revision }] }),
    );
  }
}
