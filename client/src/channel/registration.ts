import * as coordination from "@lockstep/proto/coordination";
import { Backoff } from "../backoff.ts";
import { isTransient, type LockstepError } from "../errors.ts";
import type { Runtime } from "../runtime.ts";
import { ClientLane, LanePool } from "./identity.ts";
import type { Completion, PendingRequest } from "./pending.ts";

export const REGISTER_CLIENT: Buffer = Buffer.from(
  coordination.Operation.encode({ operation: { $case: "registerClient", value: {} } }).finish(),
);

export interface IdentityHost {
  /** Sends a register-client operation. */
  register(completion: Completion): void;
  /** These may leave now. */
  ready(requests: readonly PendingRequest[]): void;
  /** No identity is to be had for this one. */
  refuse(request: PendingRequest, error: LockstepError): void;
}

/**
 * Gives every mutation a (client id, sequence). Client ids are registered when the first mutation needs one, and
 * more of them when one id's window is full; mutations wait meanwhile, within their deadlines.
 */
export class IdentitySource {
  readonly #runtime: Runtime;
  readonly #host: IdentityHost;
  readonly #pool = new LanePool();
  readonly #backoff: Backoff;
  #waiting: PendingRequest[] = [];
  #registering = false;
  /** A refused registration waits for its next turn. */
  #backingOff = false;
  #closed = false;

  constructor(runtime: Runtime, host: IdentityHost) {
    this.#runtime = runtime;
    this.#host = host;
    this.#backoff = new Backoff(runtime);
  }

  /** @returns false when the request has to wait; the host hears of it by `ready` or `refuse`. */
  assign(request: PendingRequest, now: number): boolean {
    if (request.lane === undefined) {
      const lane = this.#pool.pick(now);
      if (lane === undefined) {
        this.#waiting.push(request);
        this.#register();
        return false;
      }
      request.lane = lane;
      request.clientId = lane.clientId;
      request.sequence = lane.take(now);
    }
    // Sent again, it keeps its identity and brings the newest acknowledgement.
    request.acknowledgedBelow = request.lane.acknowledgedBelow;
    return true;
  }

  /** The caller has its answer: the sequence is acknowledged from now on. */
  done(lane: ClientLane, sequence: number): void {
    lane.done(sequence);
    if (this.#waiting.length > 0 && lane.hasRoom && !lane.retired) this.#releaseWaiting();
  }

  /** The cell does not know this client id (any more): new mutations get another. */
  forget(lane: ClientLane): void {
    this.#pool.retire(lane);
  }

  /** Another cell: its ids of these numbers are somebody else's. */
  forgetAll(): void {
    this.#pool.retireAll();
  }

  close(): void {
    this.#closed = true;
  }

  #register(): void {
    if (this.#registering || this.#backingOff || this.#closed || !this.#pool.mayGrow) return;
    this.#registering = true;
    this.#host.register((error, result) => {
      this.#registering = false;
      if (this.#closed) return;
      if (result?.kind === "register-client") {
        this.#backoff.reset();
        this.#pool.add(new ClientLane(result.clientId, this.#runtime.now()));
        this.#releaseWaiting();
      } else if (error !== undefined) {
        this.#onRefused(error);
      }
    });
  }

  #onRefused(error: LockstepError): void {
    if (isTransient(error.code) || error.code === "deadline-exceeded" || error.code === "unavailable") {
      this.#backingOff = true;
      this.#runtime.schedule(
        () => {
          this.#backingOff = false;
          // Walked by the queue again: those that were given up meanwhile leave their slots, the others ask again.
          this.#releaseWaiting();
        },
        this.#backoff.nextMs(error.retryAfterMs ?? 0),
      );
      return;
    }
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const request of waiting) {
      if (request.state === "waiting") this.#host.refuse(request, error);
    }
    // Refused or given up before, they are walked once more by the queue, which frees their slots.
    this.#host.ready(waiting);
  }

  #releaseWaiting(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#host.ready(waiting);
  }
}
