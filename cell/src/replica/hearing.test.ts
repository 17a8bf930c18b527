import assert from "node:assert/strict";
import { test } from "node:test";
import type { MemberId } from "../raft/types.ts";
import { Hearing } from "./hearing.ts";

const [M2, M3] = [2 as MemberId, 3 as MemberId];

test("a member is silent since it was last heard of, in whole milliseconds", () => {
  const hearing = new Hearing();
  hearing.membersAre([M2, M3], 0);
  hearing.elected(100);
  hearing.heard(M2, 1_500.75);
  assert.equal(hearing.silentMs(M2, 4_000), 2_499);
  assert.equal(hearing.silentMs(M3, 4_000), 3_900);
});

test("a new leader counts from when it began to lead: it cannot know of more", () => {
  const hearing = new Hearing();
  hearing.membersAre([M2], 0);
  hearing.heard(M2, 10);
  hearing.elected(60_000);
  assert.equal(hearing.silentMs(M2, 60_000), 0);
  assert.equal(hearing.silentMs(M2, 61_000), 1_000);
});

test("a member that was just added is not taken for one that has been silent all the time", () => {
  const hearing = new Hearing();
  hearing.elected(0);
  hearing.membersAre([M2], 0);
  hearing.membersAre([M2, M3], 900_000);
  assert.equal(hearing.silentMs(M3, 901_000), 1_000);
  assert.equal(hearing.silentMs(M2, 901_000), 901_000);
});

test("what a member said of the formats it knows ends with its membership", () => {
  const hearing = new Hearing();
  hearing.membersAre([M2], 0);
  assert.equal(hearing.formatVersionMaxOf(M2), undefined);
  hearing.told(M2, 1);
  assert.equal(hearing.formatVersionMaxOf(M2), 1);
  hearing.membersAre([M3], 0);
  assert.equal(hearing.formatVersionMaxOf(M2), undefined);
});
