import { assert } from "../invariant.ts";
import { decodeConfiguration, encodeConfiguration } from "../raft/index.ts";
import type { LogIndex, MemberId, RaftNode, SnapshotMetadata, Term } from "../raft/types.ts";
import { createSnapshotSink, createSnapshotSource } from "../store/index.ts";
import type { Generations, Pause, PendingGeneration, Store } from "../store/index.ts";
import type { SnapshotOffer, SnapshotReceiver, Transport } from "../transport/types.ts";
import { pauseIn } from "./environment.ts";
import type { Environment } from "./environment.ts";
import type { CellState } from "./state.ts";

export interface SnapshotsOptions {
  readonly self: MemberId;
  readonly environment: Environment;
  readonly raft: RaftNode;
  readonly state: CellState;
  readonly generations: Generations;
  /** Hands the announcement to the consensus core, once the state behind it is staged. */
  readonly announce: (from: MemberId, term: Term, snapshot: SnapshotMetadata) => void;
  readonly pump: () => void;
}

/** A received state, complete and verified, waiting for the consensus core to say that it is wanted (R31). */
interface Staged {
  readonly offerId: string;
  readonly snapshot: SnapshotMetadata;
  readonly generation: PendingGeneration;
  readonly settle: { readonly resolve: () => void; readonly reject: (error: Error) => void };
}

/** The core takes or ignores an announced snapshot at once; a durable installation takes longer than this never. */
const DECISION_MS_MAX = 120_000;

/**
 * State transfer to a member whose log is gone at the leader: a pinned view at one applied index, streamed over a
 * connection of its own into a fresh store generation, verified, and only then announced to the consensus core.
 */
export class Snapshots {
  readonly #options: SnapshotsOptions;
  #transport: Transport | undefined;
  readonly #sending = new Map<MemberId, LogIndex>();
  #receiving: StateReceiver | undefined;
  #staged: Staged | undefined;
  /** From the core's decision until the old store is gone: no other state is taken in meanwhile. */
  #adopting = false;
  /** The generation that was given up last is closed and removed: the next one is made in the same folder. */
  #discarded: Promise<void> = Promise.resolve();
  #counter = 0;

  constructor(options: SnapshotsOptions) {
    this.#options = options;
  }

  connect(transport: Transport): void {
    this.#transport = transport;
  }

  /** The log after this index is still needed by a stream under way (R33). */
  pinnedIndex(): LogIndex | undefined {
    const indexes = [...this.#sending.values()];
    return indexes.length === 0 ? undefined : (Math.min(...indexes) as LogIndex);
  }

  /** Another member's state is being received or made the live one. A stream that broke counts until it is given up. */
  get isInstalling(): boolean {
    return this.#staged !== undefined || this.#adopting || this.#receiving?.failed === false;
  }

  /** The core wants `peer` to get the state. One stream a peer. */
  send(peer: MemberId): void {
    const { raft, state, environment } = this.#options;
    if (this.#transport === undefined || this.#sending.has(peer)) return;
    const index = state.appliedIndex;
    const term = raft.termAt(index);
    if (term === undefined) return;
    const metadata: SnapshotMetadata = { index, term, configuration: state.membership.configuration };
    this.#counter += 1;
    const source = createSnapshotSource(state.store.view(), { pause: pauseIn(environment) });
    this.#sending.set(peer, index);
    raft.snapshotStarted(peer, index);
    environment.log.info("streaming the state to a member", { to: peer, index });
    const started = environment.clock.monotonicMs();
    this.#transport
      .sendSnapshot(peer, {
        id: `${String(this.#options.self)}-${String(raft.term)}-${String(index)}-${String(this.#counter)}`,
        header: encodeHeader(raft.term, metadata),
        chunk: (number) => source.chunk(number),
        close: () => source.close(),
      })
      .catch((error: unknown) => {
        environment.log.warn("streaming the state failed", { to: peer, reason: String(error) });
        return false;
      })
      .then((installed) => {
        this.#sending.delete(peer);
        environment.log.info("state stream ended", {
          to: peer,
          installed,
          ms: Math.round(environment.clock.monotonicMs() - started),
        });
        raft.snapshotFinished(peer, installed);
        this.#options.pump();
      })
      .catch((error: unknown) =>
        environment.fatal(error instanceof Error ? error : new Error(String(error))),
      );
  }

  /** A peer offers its state. undefined: not now, or not sensible. */
  receive(from: MemberId, offer: SnapshotOffer): SnapshotReceiver | undefined {
    const header = decodeHeader(offer.header);
    if (header === undefined || header.snapshot.index <= this.#options.state.appliedIndex) return undefined;
    if (this.#receiving?.offerId === offer.id && !this.#receiving.failed) return this.#receiving;
    if (this.#staged !== undefined || this.#adopting) return undefined;
    const { environment } = this.#options;
    const receiver = new StateReceiver(offer.id, this.#begin(this.#receiving), {
      pause: pauseIn(environment),
      complete: (complete) => this.#complete(complete, from, header),
      givenUp: (givenUp) => this.#givenUp(givenUp),
    });
    this.#receiving = receiver;
    return receiver;
  }

  /**
   * The core wants the announced snapshot: make it the live store. `swap` runs at the moment of the change, before the
   * old store is closed.
   */
  async adopt(snapshot: SnapshotMetadata, swap: (store: Store) => void): Promise<void> {
    const staged = this.#staged;
    assert(
      staged !== undefined && staged.snapshot.index === snapshot.index,
      "the wanted snapshot is the staged one",
      {
        wanted: snapshot.index,
        staged: staged?.snapshot.index,
      },
    );
    this.#staged = undefined;
    this.#receiving = undefined;
    this.#adopting = true;
    try {
      await staged.generation.commit(encodeHeader(snapshot.term, snapshot), swap);
    } catch (error) {
      staged.settle.reject(error instanceof Error ? error : new Error(String(error)));
      throw error;
    } finally {
      this.#adopting = false;
    }
    staged.settle.resolve();
  }

  #isStaged(offerId: string): boolean {
    return this.#staged?.offerId === offerId;
  }

  async #begin(previous: StateReceiver | undefined): Promise<PendingGeneration> {
    await this.#discarded;
    await previous?.discard();
    return this.#options.generations.begin();
  }

  /** What was received so far goes at once: nobody continues it, and the disk may be short of what it takes. */
  #givenUp(receiver: StateReceiver): void {
    // What is staged is the core's to decide on.
    if (this.#receiving !== receiver || this.#isStaged(receiver.offerId) || this.#adopting) return;
    this.#receiving = undefined;
    this.#discarded = receiver.discard();
  }

  /** A failure to remove it is the next one's concern: that begins by removing what is there. */
  #discard(generation: PendingGeneration): void {
    this.#discarded = generation.abort().catch((error: unknown) => {
      this.#options.environment.log.warn("a received state could not be removed", { reason: String(error) });
    });
  }

  /** Everything is in and verified: tell the core, which installs it or (being further by now) ignores it. */
  #complete(receiver: StateReceiver, from: MemberId, header: Header): Promise<void> {
    return receiver.generation().then(
      (generation) =>
        new Promise<void>((resolve, reject) => {
          if (this.#receiving !== receiver) return reject(new Error("another state took its place"));
          const { environment, raft } = this.#options;
          environment.log.info("state received", { from, index: header.snapshot.index });
          const cancel = environment.after(DECISION_MS_MAX, () =>
            reject(new Error("the state was not installed in time")),
          );
          const settle = {
            resolve: (): void => {
              cancel();
              resolve();
            },
            reject: (error: Error): void => {
              cancel();
              reject(error);
            },
          };
          this.#staged = { offerId: receiver.offerId, snapshot: header.snapshot, generation, settle };
          const before = raft.commit;
          this.#options.announce(from, header.term, header.snapshot);
          if (this.#isStaged(receiver.offerId)) {
            // Not taken: this member is further than the state, or the sender was deposed.
            this.#staged = undefined;
            this.#receiving = undefined;
            this.#discard(generation);
            if (raft.commit >= header.snapshot.index && before >= header.snapshot.index) settle.resolve();
            else settle.reject(new Error("the state is not wanted any more"));
          }
        }),
    );
  }
}

interface ReceiverOptions {
  readonly pause: Pause;
  readonly complete: (complete: StateReceiver) => Promise<void>;
  readonly givenUp: (givenUp: StateReceiver) => void;
}

/** The receiving end of one stream; the same object serves when the stream resumes after a broken connection. */
class StateReceiver implements SnapshotReceiver {
  readonly offerId: string;
  readonly #generation: Promise<PendingGeneration>;
  readonly #sink: Promise<ReturnType<typeof createSnapshotSink>>;
  readonly #complete: (complete: StateReceiver) => Promise<void>;
  readonly #givenUp: (givenUp: StateReceiver) => void;
  nextChunk = 0;
  failed = false;

  constructor(
    offerId: string,
    generation: Promise<PendingGeneration>,
    { pause, complete, givenUp }: ReceiverOptions,
  ) {
    this.offerId = offerId;
    this.#generation = generation;
    this.#complete = complete;
    this.#givenUp = givenUp;
    this.#sink = generation.then((pending) => createSnapshotSink(pending.store, { pause }));
    // A failure to open is reported by the first chunk.
    this.#sink.catch(() => (this.failed = true));
  }

  generation(): Promise<PendingGeneration> {
    return this.#generation;
  }

  async chunk(data: Uint8Array): Promise<void> {
    const sink = await this.#sink;
    try {
      await sink.chunk(data);
      this.nextChunk = sink.nextChunk;
    } catch (error) {
      this.failed = true;
      throw error;
    }
  }

  async finish(): Promise<void> {
    const sink = await this.#sink;
    try {
      sink.finish();
    } catch (error) {
      this.failed = true;
      throw error;
    }
    await this.#complete(this);
  }

  /** One end gave the stream up. A broken connection does not: that may resume. */
  abort(): void {
    this.#givenUp(this);
  }

  async discard(): Promise<void> {
    this.failed = true;
    try {
      const pending = await this.#generation;
      await pending.abort();
    } catch {
      // It never opened: there is nothing to remove.
    }
  }
}

interface Header {
  readonly term: Term;
  readonly snapshot: SnapshotMetadata;
}

/** u48 sender's term, u48 index, u48 term at index, configuration (raft/configuration-codec). */
function encodeHeader(term: Term, snapshot: SnapshotMetadata): Uint8Array {
  const configuration = encodeConfiguration(snapshot.configuration);
  const header = Buffer.alloc(18 + configuration.length);
  header.writeUIntBE(term, 0, 6);
  header.writeUIntBE(snapshot.index, 6, 6);
  header.writeUIntBE(snapshot.term, 12, 6);
  header.set(configuration, 18);
  return header;
}

/** Also reads the note beside a store generation that came from a snapshot. */
export function decodeHeader(bytes: Uint8Array): Header | undefined {
  if (bytes.length < 18) return undefined;
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  try {
    return {
      term: buffer.readUIntBE(0, 6) as Term,
      snapshot: {
        index: buffer.readUIntBE(6, 6) as LogIndex,
        term: buffer.readUIntBE(12, 6) as Term,
        configuration: decodeConfiguration(buffer.subarray(18)),
      },
    };
  } catch {
    return undefined;
  }
}
