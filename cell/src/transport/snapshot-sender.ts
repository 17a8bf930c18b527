import type { Connection, ConnectionEvents } from "./connection.ts";
import { Dialler } from "./dialler.ts";
import { ProtocolError } from "./errors.ts";
import { BodyReader, FRAME, FrameWriter } from "./frame.ts";
import type { TransportContext } from "./options.ts";
import type { PeerAddress, SnapshotSource } from "./types.ts";

interface Chunk {
  readonly number: number;
  readonly data: Uint8Array;
}

/**
 * Streams one snapshot to one peer. Chunks that are not acknowledged stay in memory (a window of them), so that a
 * broken connection resumes without asking the source to go back. Ends exactly once: installed, given up, stopped.
 */
export class SnapshotSender {
  readonly finished: Promise<boolean>;
  readonly #source: SnapshotSource;
  readonly #context: TransportContext;
  readonly #dialler: Dialler;
  readonly #peer: PeerAddress;
  readonly #writer = new FrameWriter();
  readonly #stopStallChecks: () => void;
  readonly #resolve: (installed: boolean) => void;
  #ended = false;
  /** Let in and told from where: chunks may go. */
  #accepted = false;
  #unacknowledged: Chunk[] = [];
  /** The next chunk to ask the source for. */
  #cursor = 0;
  /** How many chunks there are, once known. */
  #total: number | undefined;
  #reading = false;
  #finishing = false;
  #furthest = -1;
  #progressMs: number;
  #downSinceMs: number;

  constructor(peer: PeerAddress, source: SnapshotSource, context: TransportContext) {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.finished = promise;
    this.#resolve = resolve;
    this.#source = source;
    this.#context = context;
    this.#peer = peer;
    this.#progressMs = context.now();
    this.#downSinceMs = this.#progressMs;
    this.#dialler = new Dialler({ peer, purpose: "snapshot" }, context, {
      up: (connection) => this.#up(connection),
      down: () => {
        this.#accepted = false;
        this.#finishing = false;
        this.#downSinceMs = context.now();
      },
      failed: () => undefined,
      refused: (reason) => this.#end(false, `refused: ${reason}`),
    });
    const { snapshotStallMsMax } = context.bounds;
    const checkMs = Math.min(1_000, snapshotStallMsMax / 4);
    this.#stopStallChecks = context.timers.every(checkMs, () => this.#checkStall());
    this.#dialler.start();
  }

  kick(): void {
    this.#dialler.kick();
  }

  /** Gives up and tells the receiver. */
  stop(reason: string): void {
    this.#end(false, reason);
  }

  #up(connection: Connection): Omit<ConnectionEvents, "closed"> {
    const writer = this.#writer;
    writer.begin(FRAME.offer);
    writer.string(this.#source.id);
    writer.bytes(this.#source.header);
    connection.write(writer.finish());
    return { frame: (kind, body) => this.#frame(kind, body), chunkEnd: () => undefined };
  }

  #frame(kind: number, body: Buffer): void {
    if (this.#ended) return;
    const reader = new BodyReader(body);
    switch (kind) {
      case FRAME.accept:
        this.#accept(reader.varint());
        return;
      case FRAME.taken:
        this.#taken(reader.varint());
        return;
      case FRAME.done:
        this.#end(true, "installed");
        return;
      case FRAME.abort:
        this.#end(false, `the receiver gave up: ${reader.string()}`);
        return;
      default:
        throw new ProtocolError(`frame ${kind} on an outgoing snapshot stream`);
    }
  }

  /** The receiver wants chunk `next` first: resend what is in memory from there. */
  #accept(next: number): void {
    if (this.#accepted) throw new ProtocolError("a snapshot was accepted twice");
    this.#accepted = true;
    this.#progressTo(next);
    this.#unacknowledged = this.#unacknowledged.filter((chunk) => chunk.number >= next);
    const oldest = this.#unacknowledged[0]?.number ?? this.#cursor;
    if (oldest !== next) {
      // It was restarted meanwhile and has nothing any more. A source cannot go back: the next stream begins anew.
      this.#end(false, `the receiver starts over at chunk ${next}`);
      return;
    }
    for (const chunk of this.#unacknowledged) this.#writeChunk(chunk);
    this.#pump();
  }

  #taken(number: number): void {
    if (this.#unacknowledged[0]?.number !== number) {
      throw new ProtocolError(`chunk ${number} acknowledged out of turn`);
    }
    this.#unacknowledged.shift();
    this.#progressTo(number + 1);
    this.#pump();
  }

  /** Only new ground counts: a connection that breaks again and again at one place does not. */
  #progressTo(next: number): void {
    if (next <= this.#furthest) return;
    this.#furthest = next;
    this.#progressMs = this.#context.now();
  }

  #pump(): void {
    if (this.#ended || !this.#accepted || this.#reading || this.#finishing) return;
    if (this.#total !== undefined) {
      if (this.#unacknowledged.length === 0) this.#finish(this.#total);
      return;
    }
    if (this.#unacknowledged.length >= this.#context.bounds.snapshotWindowChunks) return;
    const number = this.#cursor;
    this.#reading = true;
    this.#source.chunk(number).then(
      (data) => this.#read(number, data),
      (error: unknown) => {
        this.#end(false, `reading chunk ${number} failed: ${describe(error)}`);
      },
    );
  }

  #read(number: number, data: Uint8Array | undefined): void {
    this.#reading = false;
    if (this.#ended) return;
    // Otherwise the receiver moved elsewhere meanwhile: what was read is not wanted now.
    if (number === this.#cursor) {
      if (data === undefined) {
        this.#total = number;
      } else {
        const chunk = { number, data };
        this.#unacknowledged.push(chunk);
        this.#cursor = number + 1;
        if (this.#accepted) this.#writeChunk(chunk);
      }
    }
    this.#pump();
  }

  #writeChunk(chunk: Chunk): void {
    const writer = this.#writer;
    writer.begin(FRAME.chunk);
    writer.varint(chunk.number);
    writer.raw(chunk.data);
    this.#dialler.connection?.write(writer.finish());
  }

  #finish(total: number): void {
    this.#finishing = true;
    this.#progressTo(total + 1);
    const writer = this.#writer;
    writer.begin(FRAME.finish);
    writer.varint(total);
    this.#dialler.connection?.write(writer.finish());
  }

  #checkStall(): void {
    const { snapshotStallMsMax, snapshotFinishMsMax } = this.#context.bounds;
    const nowMs = this.#context.now();
    const connected = this.#dialler.connection !== undefined;
    const sinceMs = connected ? this.#progressMs : Math.max(this.#progressMs, this.#downSinceMs);
    const limitMs = connected && this.#finishing ? snapshotFinishMsMax : snapshotStallMsMax;
    if (nowMs - sinceMs > limitMs) this.#end(false, "no progress");
  }

  #end(installed: boolean, reason: string): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#stopStallChecks();
    if (!installed) {
      this.#context.log("warn", "a snapshot was not installed", { peer: this.#peer.memberId, reason });
      const writer = this.#writer;
      writer.begin(FRAME.abort);
      writer.string(reason);
      this.#dialler.connection?.write(writer.finish());
    }
    this.#dialler.stop(reason);
    this.#unacknowledged = [];
    this.#source.close();
    this.#resolve(installed);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
