import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { MemberId, RaftStatus } from "../raft/types.ts";
import { awaitedIndex } from "./awaited-log.ts";
import type { AwaitedLogSources } from "./awaited-log.ts";

const MINUTE_MS = 60_000;

interface Scene {
  readonly role?: "leader" | "follower";
  readonly low?: boolean;
  readonly firstIndex?: number;
  /** Match and silence of members 2 and 3; member 1 leads at 100. */
  readonly others: readonly (readonly [match: number, silentMs: number])[];
}

function scene({ role = "leader", low = false, firstIndex = 11, others }: Scene): AwaitedLogSources {
  const matches = [100, ...others.map(([match]) => match)];
  const progress = matches.map((match, at) => ({ id: at + 1, match }));
  const status = { progress, firstIndex } as unknown as RaftStatus;
  return {
    raft: { role, status: () => status },
    self: 1 as MemberId,
    hearing: { silentMs: (id) => others[id - 2]?.[1] ?? 0 },
    space: { low },
    environment: { clock: { monotonicMs: () => 0 } },
  };
}

describe("log that is kept for members that are expected back", () => {
  it("reaches back to the one that lags most", () => {
    const others = [
      [90, 0],
      [20, MINUTE_MS - 1],
    ] as const;
    assert.equal(awaitedIndex(scene({ others })), 20);
    assert.equal(awaitedIndex(scene({ others, firstIndex: 21 })), 20, "its next entry is still there");
  });

  it("is not kept for one that is away for more than a minute, nor for one that needs the state anyway", () => {
    const others = [
      [90, 0],
      [20, MINUTE_MS + 1],
    ] as const;
    assert.equal(awaitedIndex(scene({ others })), 90);
    assert.equal(awaitedIndex(scene({ others: [[9, 0]] })), undefined);
  });

  it("is kept by the leader alone, and not while its disk is nearly full", () => {
    const others = [[20, 0]] as const;
    assert.equal(awaitedIndex(scene({ others, role: "follower" })), undefined);
    assert.equal(awaitedIndex(scene({ others, low: true })), undefined);
  });
});
