/** Outcomes that a client's row in the cell holds: more may not be outstanding under one id. */
const WINDOW = 1_024;
/** The cell forgets ids that were silent for an hour (clientIdleMsMax); one that rested this long is not used again. */
export const LANE_IDLE_MS: number = 20 * 60_000;
const LANES_MAX = 64;

/**
 * One registered client id. Its sequences are a sliding window: the next one may run at most {@link WINDOW} ahead of
 * the lowest that is still outstanding, because the cell remembers no more outcomes than that.
 */
export class ClientLane {
  readonly clientId: number;
  retired = false;
  lastUsedAt: number;
  #next = 1;
  #lowest = 1;
  readonly #done = new Uint8Array(WINDOW);

  constructor(clientId: number, now: number) {
    this.clientId = clientId;
    this.lastUsedAt = now;
  }

  get hasRoom(): boolean {
    return this.#next - this.#lowest < WINDOW;
  }

  get outstanding(): boolean {
    return this.#next !== this.#lowest;
  }

  /** The lowest sequence that the client still waits for. */
  get acknowledgedBelow(): number {
    return this.#lowest;
  }

  take(now: number): number {
    this.lastUsedAt = now;
    const sequence = this.#next++;
    this.#done[sequence % WINDOW] = 0;
    return sequence;
  }

  /** The caller has its answer, or gave up: the sequence is never sent again. */
  done(sequence: number): void {
    this.#done[sequence % WINDOW] = 1;
    while (this.#lowest < this.#next && this.#done[this.#lowest % WINDOW] === 1) this.#lowest += 1;
  }
}

/** The registered ids of one channel: more than one when more than {@link WINDOW} mutations are outstanding. */
export class LanePool {
  #lanes: ClientLane[] = [];

  /** A lane that may send one more mutation; undefined: register another, or wait. */
  pick(now: number): ClientLane | undefined {
    for (const lane of this.#lanes) {
      if (!lane.outstanding && now - lane.lastUsedAt > LANE_IDLE_MS) this.retire(lane);
      else if (lane.hasRoom) return lane;
    }
    return undefined;
  }

  get mayGrow(): boolean {
    return this.#lanes.length < LANES_MAX;
  }

  add(lane: ClientLane): void {
    this.#lanes.push(lane);
  }

  retireAll(): void {
    for (const lane of this.#lanes) lane.retired = true;
    this.#lanes = [];
  }

  /** The cell no longer knows this id. */
  retire(lane: ClientLane): void {
    if (lane.retired) return;
    lane.retired = true;
    this.#lanes = this.#lanes.filter((other) => other !== lane);
  }
}
