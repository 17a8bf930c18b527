// What broke in other operators, as far as a decision alone shows it: see docs/operator-bugs-we-do-not-have.md.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Condition } from "../api/types.ts";
import { plan } from "./plan.ts";
import { NOW_MS, operation, scene } from "./testing/scene.ts";
import type { Scene } from "./testing/scene.ts";
import { toStamp } from "./time.ts";
import type { Decision } from "./types.ts";

const ago = (minutes: number): string => toStamp(NOW_MS - minutes * 60_000);
const HEALTHY = { a: { is: "leader" }, b: { is: "voter" }, c: { is: "voter" } } as const;
const SILENT = { is: "voter", answers: false, silentMs: 60_000 } as const;

function decide(from: Scene): Decision {
  return plan(scene(from));
}

function condition(decision: Decision, type: string): Condition {
  const found = decision.status.conditions?.find((each) => each.type === type);
  assert.ok(found !== undefined, `there is no condition ${type}`);
  return found;
}

void describe("who leaves when a cell shrinks", () => {
  const leaving = (members: Scene["members"]): readonly string[] =>
    decide({ spec: { voters: 3 }, members: members ?? {} }).status.operation?.outgoing ?? [];

  void it("is who is deleted and who is sick, wherever they stand in the list", () => {
    assert.deepEqual(
      leaving({
        a: { is: "voter", deleting: true },
        b: { is: "leader" },
        c: SILENT,
        d: { is: "voter" },
        e: { is: "voter" },
      }),
      ["a", "c"],
    );
    assert.deepEqual(
      leaving({
        a: { is: "voter" },
        b: { is: "leader" },
        c: { is: "voter" },
        d: SILENT,
        e: { is: "voter", deleting: true },
      }),
      ["e", "d"],
    );
  });

  void it("is who shares a zone, and the change names ids, not places in a list", () => {
    const members = {
      a: { is: "voter", zone: "x", id: 9 },
      b: { is: "leader", zone: "y", id: 7 },
      c: { is: "voter", zone: "z", id: 5 },
      d: { is: "voter", zone: "z", id: 3 },
      e: { is: "voter", zone: "x", id: 1 },
    } as const;
    const outgoing = leaving(members);
    assert.deepEqual([...outgoing].sort(), ["a", "c"]);
    const decision = decide({
      spec: { voters: 3 },
      members,
      status: { operation: operation({ kind: "Shrink", outgoing }) },
    });
    assert.ok(decision.action?.kind === "change-membership");
    assert.deepEqual([...decision.action.change.remove].sort(), [5, 9]);
  });
});

void describe("several edits at once", () => {
  void it("are all followed, one after the other: volumes, members, restarts", () => {
    const spec = { voters: 5, storage: { size: "2Gi", reclaimPolicy: "Delete" } } as const;
    const outdated = {
      a: { is: "leader", outdated: true },
      b: { is: "voter", outdated: true },
      c: { is: "voter", outdated: true },
    } as const;
    assert.equal(decide({ spec, members: outdated }).action?.kind, "grow-claim");
    const grown = { requestedBytes: 2 * 2 ** 30 };
    const members = {
      a: { ...outdated.a, claim: grown },
      b: { ...outdated.b, claim: grown },
      c: { ...outdated.c, claim: grown },
    };
    assert.equal(decide({ spec, members }).status.operation?.kind, "Grow");
    const all = {
      ...members,
      d: { is: "voter", claim: grown },
      e: { is: "voter", claim: grown },
    } as const;
    assert.equal(decide({ spec, members: all }).status.operation?.kind, "Roll");
  });

  void it("never run beside each other: a roll ends before a cell shrinks, and the other way round", () => {
    const five = {
      a: { is: "leader", outdated: true },
      b: { is: "voter", outdated: true },
      c: { is: "voter" },
      d: { is: "voter" },
      e: { is: "voter" },
    } as const;
    const rolling = decide({
      spec: { voters: 3 },
      members: five,
      status: { operation: operation({ kind: "Roll", step: "wait" }) },
    });
    assert.equal(rolling.status.operation?.kind, "Roll");
    assert.ok(rolling.action?.kind === "delete-pod");
    const shrinking = decide({
      spec: { voters: 3 },
      members: five,
      status: { operation: operation({ kind: "Shrink", outgoing: ["d", "e"] }) },
    });
    assert.equal(shrinking.status.operation?.kind, "Shrink");
    assert.ok(shrinking.action?.kind === "change-membership");
  });
});

void describe("a member that is lost for good and out of date", () => {
  void it("is replaced, not restarted: the two do not take turns", () => {
    const members = { ...HEALTHY, c: { ...SILENT, node: "gone", outdated: true } } as const;
    const decision = decide({ members });
    assert.equal(decision.status.operation?.kind, "Replace");
    const rolling = decide({ members, status: { operation: operation({ kind: "Roll", step: "wait" }) } });
    assert.match(rolling.status.lastOperation?.result ?? "", /^Superseded/);
    assert.equal(decide({ members, status: rolling.status }).status.operation?.kind, "Replace");
  });
});

void describe("a pod that ended well", () => {
  void it("is made anew on its own volume, with or without a majority", () => {
    for (const blind of [false, true]) {
      const ended = { is: "voter", answers: false, pod: { phase: "Succeeded", ready: false } } as const;
      const decision = decide({ members: { ...HEALTHY, c: ended }, blind });
      assert.ok(decision.action?.kind === "delete-pod");
      assert.equal(decision.action.uid, "pod-c");
      const missing = { is: "voter", answers: false, pod: "missing" } as const;
      const made = decide({ members: { ...HEALTHY, c: missing }, blind });
      assert.ok(made.action?.kind === "create-pod");
      assert.equal(made.action.mode.kind, "existing");
    }
  });
});

void describe("a newcomer that never gets ready", () => {
  const members = {
    ...HEALTHY,
    c: { is: "voter", deleting: true },
    d: { is: "learner", answers: false },
  } as const;
  const replace = operation({
    kind: "Replace",
    trigger: "Deleted",
    outgoing: ["c"],
    incoming: ["d"],
    step: "catch-up",
    deadline: ago(1),
  });
  const spec = { storage: { size: "1Gi", reclaimPolicy: "Retain" } } as const;

  void it("goes at the deadline, with its id, its object and its volume, and holds up nothing", () => {
    const aborted = decide({ spec, members, status: { operation: replace } });
    assert.match(aborted.status.lastOperation?.result ?? "", /^Aborted/);
    const dropped = decide({ spec, members, status: aborted.status });
    assert.ok(dropped.action?.kind === "change-membership");
    assert.deepEqual(dropped.action.change.remove, [4]);
    const left = { deleting: true, answers: false, pod: "missing" } as const;
    const released = decide({ spec, members: { ...members, d: left }, status: dropped.status });
    assert.ok(released.action?.kind === "release-member");
    assert.equal(released.action.member, "d");
    assert.equal(released.action.deleteClaim, true, "a copy is no data of anybody");
  });

  void it("has a successor of another name, so of another volume and identity", () => {
    const aborted = decide({ spec, members, status: { operation: replace } });
    const rest = { a: members.a, b: members.b, c: members.c };
    const again = decide({ spec, members: rest, status: aborted.status, over: { nowMs: NOW_MS + 60_000 } });
    const [name] = again.status.operation?.incoming ?? [];
    assert.ok(name !== undefined && name !== "d");
    assert.equal(again.status.operation?.attempt, 2);
  });

  void it("gets no help from a second newcomer, whoever else is lost", () => {
    const decision = decide({
      members: { ...HEALTHY, b: { ...SILENT, node: "gone" }, d: { answers: false } },
      status: {
        operation: operation({ kind: "Replace", outgoing: ["c"], incoming: ["d"], step: "members" }),
      },
    });
    assert.deepEqual(decision.status.operation?.incoming, ["d"]);
    assert.notEqual(decision.action?.kind, "create-member");
  });
});

void describe("a change of voters", () => {
  const growing = (d: object, e: object): Decision =>
    decide({
      spec: { voters: 5 },
      members: { ...HEALTHY, d: { is: "learner", ...d }, e: { is: "learner", ...e } },
      status: { operation: operation({ kind: "Grow", step: "settle", incoming: ["d", "e"] }) },
    });

  void it("is not begun while a newcomer is behind, silent or does not answer", () => {
    assert.equal(growing({}, {}).action?.kind, "change-membership");
    for (const trouble of [{ lag: 5_000 }, { silentMs: 30_000 }, { answers: false }]) {
      assert.equal(growing({}, trouble).action, undefined, JSON.stringify(trouble));
    }
  });

  void it("is not begun without a healthy majority before it, even to replace who is lost", () => {
    const decision = decide({
      members: { ...HEALTHY, b: SILENT, c: { ...SILENT, node: "gone" }, d: { is: "learner" } },
      status: {
        operation: operation({
          kind: "Replace",
          trigger: "Lost",
          step: "settle",
          outgoing: ["c"],
          incoming: ["d"],
        }),
      },
    });
    assert.equal(decision.action, undefined);
    assert.match(decision.status.operation?.message ?? "", /only 1 of 3 voters are healthy/);
  });
});

void describe("an operator that sees nobody", () => {
  void it("replaces nobody, however long everybody seems lost", () => {
    const members = [
      { name: "a", id: 1, role: "Voter", ready: false, lostSince: ago(120) },
      { name: "b", id: 2, role: "Voter", ready: false, lostSince: ago(120) },
      { name: "c", id: 3, role: "Voter", ready: false, lostSince: ago(120) },
    ] as const;
    const silent = { answers: false } as const;
    const decision = decide({
      members: {
        a: { ...HEALTHY.a, ...silent },
        b: { ...HEALTHY.b, ...silent },
        c: { ...HEALTHY.c, ...silent },
      },
      status: { members },
      blind: true,
    });
    assert.equal(decision.action, undefined);
    assert.equal(decision.status.operation, undefined);
    assert.equal(condition(decision, "QuorumHealthy").status, "Unknown");
  });
});

void describe("a volume", () => {
  void it("that is lost is no place to run: its member is replaced by one with a volume of its own", () => {
    const c = { ...SILENT, silentMs: 11 * 60_000, claim: { phase: "Lost" }, pod: "missing" } as const;
    const decision = decide({ members: { ...HEALTHY, c } });
    assert.equal(decision.status.operation?.kind, "Replace");
    assert.deepEqual(decision.status.operation.outgoing, ["c"]);
    assert.notEqual(decision.status.operation.incoming?.[0], "c");
  });

  void it("that has no disk yet gets its larger size when it has, and holds up nothing until then", () => {
    const claim = { phase: "Pending" } as const;
    const decision = decide({
      spec: { storage: { size: "2Gi", reclaimPolicy: "Delete" } },
      members: { ...HEALTHY, c: { is: "voter", claim, answers: false, pod: { phase: "Failed" } } },
    });
    assert.deepEqual(decision.action, { kind: "grow-claim", member: "a", size: "2Gi" });
    const grown = { requestedBytes: 2 * 2 ** 30 };
    const next = decide({
      spec: { storage: { size: "2Gi", reclaimPolicy: "Delete" } },
      members: {
        a: { is: "leader", claim: grown },
        b: { is: "voter", claim: grown },
        c: { is: "voter", claim, answers: false, pod: { phase: "Failed" } },
      },
    });
    assert.equal(next.action?.kind, "delete-pod");
  });

  void it("that its class does not let grow is told, with the way out, and holds up nothing else", () => {
    const claim = { growable: false };
    const spec = { storage: { size: "2Gi", reclaimPolicy: "Delete" } } as const;
    const members = {
      a: { is: "leader", claim },
      b: { is: "voter", claim, outdated: true },
      c: { is: "voter", claim, deleting: true },
    } as const;
    const decision = decide({ spec, members });
    assert.equal(decision.status.operation?.kind, "Replace");
    assert.equal(condition(decision, "Stalled").reason, "VolumeCannotGrow");
    assert.match(condition(decision, "Stalled").message, /a, b, c cannot grow to 2Gi.*allowVolumeExpansion/);
    const idle = decide({
      spec,
      members: { ...members, b: { is: "voter", claim }, c: { is: "voter", claim } },
    });
    assert.equal(idle.action, undefined);
    assert.equal(condition(idle, "Ready").status, "False");
  });

  void it("that is full is told before anybody is sick, with the way out", () => {
    for (const full of [{ freeBytes: 1e7 }, { alarms: ["no-space"] }]) {
      const decision = decide({ members: { ...HEALTHY, c: { is: "voter", status: full } } });
      assert.equal(condition(decision, "Degraded").reason, "VolumeFull");
      assert.match(condition(decision, "Degraded").message, /c is full\. Raise spec\.storage\.size/);
    }
  });
});

void describe("where a cell is found", () => {
  void it("stands in its status from when clients are let in", () => {
    const early = decide({ members: { a: { is: "leader" } }, status: { admitted: false } });
    assert.equal(early.status.endpoints, undefined);
    assert.deepEqual(decide({ members: HEALTHY }).status.endpoints, {
      client: "cell-client.default.svc:7400",
      http: "cell-client.default.svc:7401",
    });
  });
});

void describe("certificates in use", () => {
  const valid = (leftMs: number): Condition =>
    condition(
      decide({
        members: HEALTHY,
        over: {
          certificates: { kind: "ready", message: "", notAfterMs: NOW_MS + leftMs, due: undefined },
        },
      }),
      "CertificatesValid",
    );

  void it("are told of a day before they end, and when they have", () => {
    assert.equal(valid(48 * 3_600_000).status, "True");
    assert.equal(valid(23 * 3_600_000).reason, "ExpiresSoon");
    assert.equal(valid(-1).reason, "Expired");
  });

  const taken = "The Secret apps/cell-client is there already and is not this cell's. Delete or rename it.";
  const certificates = {
    kind: "waiting",
    message: taken,
    notAfterMs: undefined,
    due: undefined,
    taken,
  } as const;

  void it("whose Secret is somebody else's are told to a person, and hold up nothing else", () => {
    const members = { ...HEALTHY, b: { is: "voter", pod: "missing", answers: false } } as const;
    const decision = decide({ members, over: { certificates } });
    assert.equal(decision.action?.kind, "create-pod");
    const stalled = condition(decision, "Stalled");
    assert.deepEqual([stalled.status, stalled.reason, stalled.message], ["True", "NameTaken", taken]);
    const valid = condition(decision, "CertificatesValid");
    assert.deepEqual([valid.status, valid.reason], ["False", "NameTaken"]);
    const due = decide({ members, over: { certificates: { ...certificates, due: "issue" } } });
    assert.equal(due.action?.kind, "advance-certificates");
    assert.equal(condition(due, "Stalled").reason, "NameTaken");
  });

  void it("whose Secret is somebody else's let no cell be founded", () => {
    const decision = decide({ over: { certificates } });
    assert.equal(decision.action, undefined);
    assert.equal(condition(decision, "Stalled").message, taken);
  });
});
