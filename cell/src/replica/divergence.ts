import type { Digest } from "../machine/types.ts";
import type { Configuration, LogIndex, MemberId } from "../raft/types.ts";

/** Members compare their digests at every index that is a multiple of this: all of them pass it exactly. */
export const DIGEST_INTERVAL = 256;
/** Digests remembered, so that members at different speeds can still compare. */
const REMEMBERED_MAX = 4096;

export type DivergenceVerdict =
  | { readonly kind: "agree" }
  /** A majority agrees on something else: this member must stop. */
  | { readonly kind: "minority"; readonly index: LogIndex; readonly own: number; readonly majority: number }
  /** Voters differ and no majority agrees: refuse writes, tell a person. */
  | { readonly kind: "split"; readonly index: LogIndex };

/**
 * Compares what the applies *produced* on each member (W19): replicas that applied the same log and hold different
 * state are found within seconds, and the one in the minority stops before it can serve anything more.
 */
export class DivergenceDetector {
  readonly #self: MemberId;
  readonly #own = new Map<LogIndex, number>();
  readonly #others = new Map<MemberId, Map<LogIndex, number>>();
  #newest: Digest | undefined;

  constructor(self: MemberId) {
    this.#self = self;
  }

  /** The newest digest at a comparison index, to be told to the peers. */
  get newest(): Digest | undefined {
    return this.#newest;
  }

  /** This member's state after each slice; only comparison indexes are kept. */
  record(digest: Digest): void {
    if (digest.index % DIGEST_INTERVAL !== 0 || digest.index === 0) return;
    this.#newest = digest;
    remember(this.#own, digest.index, digest.hash);
  }

  /** A snapshot replaced the state: what was recorded before may never be reached by others in the same way. */
  reset(): void {
    this.#own.clear();
    this.#newest = undefined;
  }

  told(from: MemberId, index: LogIndex, hash: number, configuration: Configuration): DivergenceVerdict {
    let theirs = this.#others.get(from);
    if (theirs === undefined) {
      theirs = new Map();
      this.#others.set(from, theirs);
    }
    remember(theirs, index, hash);
    return this.#judge(index, configuration);
  }

  #judge(index: LogIndex, configuration: Configuration): DivergenceVerdict {
    const own = this.#own.get(index);
    if (own === undefined) return { kind: "agree" };
    const voters = configuration.voters;
    const counts = new Map<number, number>();
    for (const voter of voters) {
      const hash = voter === this.#self ? own : this.#others.get(voter)?.get(index);
      if (hash !== undefined) counts.set(hash, (counts.get(hash) ?? 0) + 1);
    }
    const others = [...counts.keys()].filter((hash) => hash !== own);
    if (others.length === 0) return { kind: "agree" };
    const majority = Math.floor(voters.length / 2) + 1;
    for (const hash of others) {
      if ((counts.get(hash) ?? 0) >= majority) return { kind: "minority", index, own, majority: hash };
    }
    // The dissenter stops itself; this member is with the majority, or may still turn out to be.
    const known = [...counts.values()].reduce((sum, count) => sum + count, 0);
    if ((counts.get(own) ?? 0) >= majority || known < voters.length) return { kind: "agree" };
    return { kind: "split", index };
  }
}

function remember(map: Map<LogIndex, number>, index: LogIndex, hash: number): void {
  map.set(index, hash);
  if (map.size <= REMEMBERED_MAX) return;
  const oldest = map.keys().next();
  if (oldest.done !== true) map.delete(oldest.value);
}
