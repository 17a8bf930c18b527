import { ProtocolError } from "../../../cell/src/transport/errors.ts";
import { BodyReader, FRAME, FrameWriter } from "../../../cell/src/transport/frame.ts";
import type { PeerAddress, SnapshotSource } from "../../../cell/src/transport/types.ts";
import { PeerDialler } from "./peer-dialler.ts";
import type { PeerContext } from "./peer-dialler.ts";
import type { PeerSocket } from "./peer-socket.ts";

interface Chunk {
  readonly number: number;
  readonly data: Uint8Array;
}

const STALL_CHECK_MS = 1_000;

/**
 * Streams one snapshot to one peer, with production's window, resumption and patience; production's `SnapshotInbox`
 * is at the other end.
 */
export class PeerSnapshotSender {
  readonly finished: Promise<boolean>;
  readonly #source: SnapshotSource;
  readonly #context: PeerContext;
  readonly #peer: PeerAddress;
  readonly #dialler: PeerDialler;
  readonly #writer = new FrameWriter();
  readonly #resolve: (installed: boolean) => void;
  #cancelTimer: () => void = () => undefined;
  #ended = false;
  /** Let in and told from where: chunks may go. */
  #accepted = false;
  /** Kept in memory until they are acknowledged, so that a broken connection resumes from here. */
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

  constructor(peer: PeerAddress, source: SnapshotSource, context: PeerContext) {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.finished = promise;
    this.#resolve = resolve;
    this.#source = source;
    this.#context = context;
    this.#peer = peer;
    this.#progressMs = context.now();
    this.#downSinceMs = this.#progressMs;
    this.#dialler = new PeerDialler(peer, "snapshot", context, {
      up: (socket) => this.#up(socket),
      down: () => {
        this.#accepted = false;
        this.#finishing = false;
        this.#downSinceMs = context.now();
      },
      failed: () => undefined,
      refused: (reason) => this.#end(false, `refused: ${reason}`),
    });
    this.#watchStall();
    this.#dialler.start();
  }

  kick(): void {
    this.#dialler.kick();
  }

  /** Gives up and tells the receiver. */
  stop(reason: string): void {
    this.#end(false, reason);
  }

  #up(socket: PeerSocket) {
    const writer = this.#writer;
    writer.begin(FRAME.offer);
    writer.string(this.#source.id);
    writer.bytes(this.#source.header);
    socket.write(writer.finish());
    return {
      frame: (kind: number, body: Buffer): void => this.#frame(kind, body),
      chunkEnd: (): void => undefined,
    };
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

  /** The receiver wants chunk `next` first: from memory. */
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
      (error: unknown) => this.#end(false, `reading chunk ${number} failed: ${String(error)}`),
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

  #writeChunk({ number, data }: Chunk): void {
    const writer = this.#writer;
    writer.begin(FRAME.chunk);
    writer.varint(number);
    writer.raw(data);
    this.#dialler.socket?.write(writer.finish());
  }

  #finish(total: number): void {
    this.#finishing = true;
    this.#progressTo(total + 1);
    const writer = this.#writer;
    writer.begin(FRAME.finish);
    writer.varint(total);
    this.#dialler.socket?.write(writer.finish());
  }

  #watchStall(): void {
    const { process, bounds } = this.#context;
    this.#cancelTimer = process.after(Math.min(STALL_CHECK_MS, bounds.snapshotStallMsMax / 4), () => {
      this.#checkStall();
      if (!this.#ended) this.#watchStall();
    });
  }

  #checkStall(): void {
    const { snapshotStallMsMax, snapshotFinishMsMax } = this.#context.bounds;
    const connected = this.#dialler.socket !== undefined;
    const sinceMs = connected ? this.#progressMs : Math.max(this.#progressMs, this.#downSinceMs);
    const limitMs = connected && this.#finishing ? snapshotFinishMsMax : snapshotStallMsMax;
    if (this.#context.now() - sinceMs > limitMs) this.#end(false, "no progress");
  }

  #end(installed: boolean, reason: string): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#cancelTimer();
    if (!installed) {
      const peer = this.#peer.memberId;
      this.#context.log("warn", "a snapshot was not installed", { peer, reason });
      const writer = this.#writer;
      writer.begin(FRAME.abort);
      writer.string(reason);
      this.#dialler.socket?.write(writer.finish());
    }
    this.#dialler.stop(reason);
    this.#unacknowledged = [];
    this.#source.close();
    this.#resolve(installed);
  }
}
