import assert from "node:assert/strict";
import { it } from "node:test";
import type { LogIndex, RaftNode } from "../raft/types.ts";
import { Removal } from "./removal.ts";

const index = (value: number): LogIndex => value as LogIndex;

it("a removed member goes once a leader has told that the change is committed, not because its own log says so", () => {
  const raft = { role: "follower", leaderCommit: index(0) };
  let announced = 0;
  const removal = new Removal(raft as unknown as RaftNode, () => (announced += 1));
  removal.look();
  removal.applied(index(259));
  assert.equal(announced, 0, "known from its own log alone: the others may need its vote");
  raft.leaderCommit = index(258);
  removal.look();
  assert.equal(announced, 0);
  raft.leaderCommit = index(259);
  removal.look();
  removal.look();
  assert.equal(announced, 1);
});

it("a leader that is removed goes at once: it tells the others itself", () => {
  const raft = { role: "leader", leaderCommit: index(0) };
  let announced = 0;
  new Removal(raft as unknown as RaftNode, () => (announced += 1)).applied(index(7));
  assert.equal(announced, 1);
});
