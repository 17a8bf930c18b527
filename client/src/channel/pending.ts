import type { Bytes } from "../bytes.ts";
import type { LockstepError } from "../errors.ts";
import type { OperationResult } from "../types.ts";
import type { PutFields, RequestHeader } from "../wire/requests.ts";
import type { Link } from "./link.ts";
import type { ClientLane } from "./identity.ts";

/** Told once for every request. On success `error` is undefined and `result` is set. */
export type Completion = (error: LockstepError | undefined, result: OperationResult | undefined) => void;

export type RequestKind = "put" | "get" | "raw";

/**
 * `free`: in the table's free list. `waiting`: in a queue, not on the wire. `in-flight`: sent on `link`.
 * `delayed`: refused for now, to be sent again. `abandoned`: answered to the caller while still in a queue.
 */
export type RequestState = "free" | "waiting" | "in-flight" | "delayed" | "abandoned";

const NO_COMPLETION: Completion = () => undefined;
const EMPTY = new Uint8Array(0);

/**
 * One request slot, used again and again: a request allocates nothing but its result. Key and value are kept by
 * reference until the answer (a broken stream sends them again), so callers must not change them meanwhile.
 */
export class PendingRequest implements RequestHeader, PutFields {
  readonly slot: number;
  id = 0;
  state: RequestState = "free";
  kind: RequestKind = "raw";
  /** A mutation carries an identity and is never repeated without one. */
  mutation = false;
  key: Bytes = EMPTY;
  value: Bytes = EMPTY;
  leaseId = "0";
  sequential = false;
  returnPrevious = false;
  serializable = false;
  operation: Uint8Array = EMPTY;
  /** Without an identity even if the channel has one: the registration itself. */
  anonymous = false;
  /** The answer is wanted as it came. */
  raw = false;
  lane: ClientLane | undefined = undefined;
  clientId = 0;
  sequence = 0;
  acknowledgedBelow = 0;
  deadlineMs = 0;
  deadlineAt = 0;
  /** An earlier attempt may have taken effect: its answer was lost. */
  uncertain = false;
  sizeBound = 0;
  /** Submission order: what a broken stream held is sent again in it. */
  ordinal = 0;
  link: Link | undefined = undefined;
  completion: Completion = NO_COMPLETION;

  constructor(slot: number) {
    this.slot = slot;
  }

  /** Drops what the request held; the slot's id is spent. */
  clear(): void {
    this.state = "free";
    this.key = EMPTY;
    this.value = EMPTY;
    this.operation = EMPTY;
    this.leaseId = "0";
    this.sequential = false;
    this.returnPrevious = false;
    this.serializable = false;
    this.anonymous = false;
    this.raw = false;
    this.lane = undefined;
    this.clientId = 0;
    this.sequence = 0;
    this.uncertain = false;
    this.link = undefined;
    this.completion = NO_COMPLETION;
  }
}

const SLOT_BITS = 16;
export const REQUESTS_MAX: number = 2 ** SLOT_BITS;

/**
 * All requests of a channel, by id. An id is a slot and a generation, so an answer that comes after its request was
 * given up finds nothing, even if the slot is in use again.
 */
export class RequestTable {
  readonly #slots: PendingRequest[] = [];
  readonly #free: PendingRequest[] = [];
  readonly #limit: number;
  #used = 0;
  #ordinal = 0;

  constructor(limit: number) {
    this.#limit = Math.min(limit, REQUESTS_MAX);
  }

  get used(): number {
    return this.#used;
  }

  /**
   * @param isOwn the channel's own, without which none of the others could go on: there is room for one more of these
   * @returns undefined when the table is full.
   */
  acquire(isOwn: boolean): PendingRequest | undefined {
    if (!isOwn && this.#used >= this.#limit) return undefined;
    let request = this.#free.pop();
    if (request === undefined) {
      if (this.#slots.length > this.#limit) return undefined;
      request = new PendingRequest(this.#slots.length);
      request.id = request.slot;
      this.#slots.push(request);
    }
    this.#used += 1;
    request.id += REQUESTS_MAX;
    request.ordinal = ++this.#ordinal;
    request.state = "waiting";
    return request;
  }

  find(id: number): PendingRequest | undefined {
    const request = this.#slots[id & (REQUESTS_MAX - 1)];
    return request !== undefined && request.id === id && request.state !== "free" ? request : undefined;
  }

  release(request: PendingRequest): void {
    request.clear();
    this.#used -= 1;
    this.#free.push(request);
  }

  /** Every request that is not free, in slot order. */
  *active(): Generator<PendingRequest, void, undefined> {
    for (const request of this.#slots) {
      if (request.state !== "free") yield request;
    }
  }
}
