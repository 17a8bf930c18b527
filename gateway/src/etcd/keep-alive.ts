import type { Failure, LeaseId, Revision } from "../coordinator/index.ts";
import { NO_LEASE } from "../coordinator/index.ts";
import type { StreamCall } from "../grpc/call.ts";
import { isLeaseId } from "../validation.ts";
import type { EtcdContext } from "./context.ts";
import { admitStream, finish, statusOfThrown } from "./context.ts";
import { statusOf } from "./errors.ts";
import { secondsOf } from "./lease.ts";

/** Answers that a client may leave unread, in bytes, before its requests wait. */
const UNREAD_BYTES_MAX = 256 * 1024;
/** Requests of a stream without an answer before its next ones wait. */
const UNANSWERED_MAX = 10_000;

interface Asked {
  readonly stream: KeepAliveStream;
  /** The stream's count of requests: answers go in this order. */
  readonly number: number;
  readonly leaseId: LeaseId;
}

/**
 * Keep-alives of all streams of a turn reach the coordinator as one renewal a namespace: etcd's clients send one lease a
 * message, and many of them a stream for each lease.
 */
export class KeepAlives {
  private readonly context: EtcdContext;
  private asked = new Map<string, Asked[]>();
  private scheduled = false;
  private readonly streams = new Set<KeepAliveStream>();

  constructor(context: EtcdContext) {
    this.context = context;
  }

  open(call: StreamCall): void {
    const { context } = this;
    const namespace = admitStream(context, call, this.streams.size);
    if (namespace === undefined) return;
    const stream = new KeepAliveStream(call, context, (number, leaseId) => {
      this.ask(namespace, { stream, number, leaseId });
    });
    this.streams.add(stream);
    call.onClose(() => {
      this.streams.delete(stream);
    });
  }

  private ask(namespace: string, asked: Asked): void {
    const waiting = this.asked.get(namespace);
    if (waiting === undefined) this.asked.set(namespace, [asked]);
    else waiting.push(asked);
    if (this.scheduled) return;
    this.scheduled = true;
    // Behind all sockets of this turn of the event loop.
    setImmediate(() => this.renew());
  }

  private renew(): void {
    this.scheduled = false;
    const { asked } = this;
    this.asked = new Map();
    const { renewalsPerFrameMax } = this.context.limits;
    for (const [namespace, all] of asked) {
      for (let at = 0; at < all.length; at += renewalsPerFrameMax) {
        this.renewBatch(namespace, all.slice(at, at + renewalsPerFrameMax));
      }
    }
  }

  private renewBatch(namespace: string, batch: readonly Asked[]): void {
    const leaseIds = batch.map(({ leaseId }) => leaseId);
    this.context.coordinator.renew({ namespace, epoch: 0, leaseIds }, (outcome) => {
      for (const [i, { stream, number, leaseId }] of batch.entries()) {
        if (outcome.ok) {
          const remainingMs = outcome.remainingMs[i] ?? 0;
          stream.renewed({ number, leaseId, remainingMs }, outcome.revision);
        } else {
          stream.refused(outcome.failure);
        }
      }
    });
  }
}

interface Renewed {
  readonly number: number;
  readonly leaseId: LeaseId;
  /** 0: there is no such lease. */
  readonly remainingMs: number;
}

/** One stream. Its answers go out in the order of its requests. */
class KeepAliveStream {
  private readonly call: StreamCall;
  private readonly context: EtcdContext;
  private readonly ask: (number: number, leaseId: LeaseId) => void;
  /** One for each request from `firstNumber` on; `undefined` while its answer is on its way. */
  private readonly answers: (Buffer | undefined)[] = [];
  private firstNumber = 0;
  private halfClosed = false;
  private ended = false;

  constructor(call: StreamCall, context: EtcdContext, ask: KeepAliveStream["ask"]) {
    this.call = call;
    this.context = context;
    this.ask = ask;
    call.onMessage((message) => this.message(message));
    call.onHalfClose(() => {
      this.halfClosed = true;
      this.endIfDone();
    });
    call.onDrain(() => this.resumeIfRoom());
    call.onClose(() => {
      this.ended = true;
    });
  }

  renewed({ number, leaseId, remainingMs }: Renewed, revision: Revision): void {
    if (!this.ended) this.answer(number, this.encode(leaseId, secondsOf(remainingMs), revision));
  }

  refused(failure: Failure): void {
    if (this.ended) return;
    this.ended = true;
    this.call.fail(statusOf(failure));
  }

  private message(message: Buffer): void {
    if (this.ended) return;
    let leaseId: LeaseId = NO_LEASE;
    try {
      const { reader } = this.context;
      reader.reset(message, 0, message.length);
      while (reader.position < reader.limit) {
        const tag = reader.uint32();
        if (tag === 0x08) leaseId = reader.int64();
        else reader.skip(tag);
      }
    } catch (error) {
      this.ended = true;
      this.call.fail(statusOfThrown(error));
      return;
    }
    const number = this.firstNumber + this.answers.length;
    this.answers.push(undefined);
    if (this.answers.length >= UNANSWERED_MAX) this.call.pause();
    if (isLeaseId(leaseId)) this.ask(number, leaseId);
    else this.answer(number, this.encode(leaseId, 0, this.context.coordinator.info().revision));
  }

  /** TTL 0 says that the lease ended, or never was. */
  private encode(leaseId: LeaseId, ttlSeconds: number, revision: Revision): Buffer {
    const { writer } = this.context;
    writer.uint(0x18, ttlSeconds);
    writer.int64(0x10, leaseId);
    return finish(this.context, revision);
  }

  private answer(number: number, bytes: Buffer): void {
    this.answers[number - this.firstNumber] = bytes;
    let sent = 0;
    for (let next = this.answers[0]; next !== undefined; next = this.answers[sent]) {
      sent += 1;
      this.call.write(next);
    }
    if (sent === 0) return;
    this.answers.splice(0, sent);
    this.firstNumber += sent;
    if (this.call.bufferedBytes > UNREAD_BYTES_MAX) this.call.pause();
    else this.resumeIfRoom();
    this.endIfDone();
  }

  private resumeIfRoom(): void {
    if (this.answers.length < UNANSWERED_MAX && this.call.bufferedBytes <= UNREAD_BYTES_MAX)
      this.call.resume();
  }

  private endIfDone(): void {
    if (!this.halfClosed || this.answers.length > 0 || this.ended) return;
    this.ended = true;
    this.call.end();
  }
}
