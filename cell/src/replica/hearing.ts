import type { MemberId } from "../raft/types.ts";

/**
 * When each other member was last heard of, and what it can apply. The consensus core counts ticks and forgets them
 * every election timeout; whoever decides that a member is lost for good needs it in time.
 */
export class Hearing {
  readonly #heardMs = new Map<MemberId, number>();
  readonly #formatVersionMax = new Map<MemberId, number>();
  #leadsSinceMs = 0;

  /** This member was elected: nobody can have been silent towards it for longer. */
  elected(nowMs: number): void {
    this.#leadsSinceMs = nowMs;
  }

  heard(from: MemberId, nowMs: number): void {
    this.#heardMs.set(from, nowMs);
  }

  told(from: MemberId, formatVersionMax: number): void {
    this.#formatVersionMax.set(from, formatVersionMax);
  }

  /** The members of the present configuration; who is new among them is as if heard of now. */
  membersAre(ids: readonly MemberId[], nowMs: number): void {
    for (const id of [...this.#heardMs.keys()]) if (!ids.includes(id)) this.#heardMs.delete(id);
    for (const id of [...this.#formatVersionMax.keys()]) {
      if (!ids.includes(id)) this.#formatVersionMax.delete(id);
    }
    for (const id of ids) if (!this.#heardMs.has(id)) this.#heardMs.set(id, nowMs);
  }

  /** For how long a leader has not heard of a member, in whole milliseconds; at most since it began to lead. */
  silentMs(id: MemberId, nowMs: number): number {
    const sinceMs = Math.max(this.#heardMs.get(id) ?? 0, this.#leadsSinceMs);
    return Math.max(0, Math.floor(nowMs - sinceMs));
  }

  /** The newest format that a member said it can apply; undefined: it has not said so since this member started. */
  formatVersionMaxOf(id: MemberId): number | undefined {
    return this.#formatVersionMax.get(id);
  }
}
