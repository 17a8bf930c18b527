import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { CoordinationCellStatus, OperationStatus } from "../api/types.ts";
import { plan } from "./plan.ts";
import { ago, conditionOf, decide, gist, HEALTHY } from "./testing/decide.ts";
import { NOW_MS, nodeOf, operation, scene } from "./testing/scene.ts";
import type { Scene } from "./testing/scene.ts";
import { toStamp } from "./time.ts";
import type { Decision } from "./types.ts";

void describe("a cell at rest", () => {
  void it("is Ready, and nothing is done", () => {
    const decision = decide({ members: HEALTHY });
    assert.equal(gist(decision), "nothing");
    assert.equal(conditionOf(decision, "Ready").status, "True");
    assert.equal(conditionOf(decision, "Reconciling").status, "False");
    assert.equal(conditionOf(decision, "Stalled").status, "False");
    assert.equal(decision.status.observedGeneration, 7);
    assert.equal(decision.status.phase, "Ready");
    assert.equal(decision.status.readiness, "3/3");
  });

  void it("gives the same status when it is planned again on its own status", () => {
    const first = decide({ members: HEALTHY });
    const second = plan(scene({ members: HEALTHY, status: first.status, over: { nowMs: NOW_MS + 60_000 } }));
    assert.deepEqual(second.status, first.status);
  });
});

void describe("founding", () => {
  void it("writes the operation with the member's name before anything is made", () => {
    const decision = decide({});
    assert.equal(gist(decision), "Create/begin");
    const [name] = decision.status.operation?.incoming ?? [];
    assert.match(name ?? "", /^cell-[a-z0-9]{5}$/);
    const next = decide({ status: decision.status });
    assert.ok(next.action?.kind === "create-member");
    assert.equal(next.action.name, name);
    assert.equal(next.action.bootstrap, true);
  });

  void it("does not happen over volumes of an earlier cell", () => {
    const decision = decide({ over: { orphanedClaims: ["cell-old"] } });
    assert.equal(decision.action, undefined);
    assert.equal(conditionOf(decision, "Stalled").reason, "RetainedData");
    assert.match(conditionOf(decision, "Stalled").message, /cell-old/);
  });

  void it("does not happen a second time when all CellMembers are gone", () => {
    const decision = decide({ status: { cellId: "id-1" } });
    assert.equal(decision.action, undefined);
    assert.equal(conditionOf(decision, "Stalled").reason, "MembersLost");
  });

  void it("names what is missing", () => {
    const obstacle = { reason: "StorageClassMissing", message: "There is no StorageClass fast." };
    const decision = decide({ over: { obstacles: [obstacle] } });
    assert.equal(conditionOf(decision, "Stalled").message, obstacle.message);
  });

  void it("bootstraps on an empty volume only while nobody has seen the cell's id", () => {
    const first = { bootstrap: true, pod: "missing", answers: false } as const;
    const status = { operation: operation({ kind: "Create", step: "members", incoming: ["a"] }) };
    const before = decide({ members: { a: first }, status });
    assert.ok(before.action?.kind === "create-pod");
    assert.equal(before.action.mode.kind, "bootstrap");
    const after = decide({
      members: { a: first },
      status: { cellId: "id-1", members: [{ name: "a", id: 1, role: "Voter", ready: true }] },
    });
    assert.ok(after.action?.kind === "create-pod");
    assert.equal(after.action.mode.kind, "existing");
  });

  void it("restarts the founder without the bootstrap argument before anybody joins", () => {
    const decision = decide({
      members: { a: { is: "leader", bootstrap: true, pod: { start: "bootstrap" } } },
      status: { admitted: false },
    });
    assert.equal(gist(decision), "delete-pod a");
  });

  void it("lets clients in only when the first voters have all joined", () => {
    const alone = decide({ members: { a: { is: "leader" } }, status: { admitted: false } });
    assert.equal(alone.status.admitted, false);
    assert.equal(gist(alone), "Create/begin");
    assert.equal(alone.status.operation?.incoming?.length, 2);
    const all = decide({ members: HEALTHY, status: { admitted: false } });
    assert.equal(all.status.admitted, true);
    assert.ok(all.action?.kind === "apply-shared");
    assert.equal(all.action.admitted, true);
  });
});

void describe("growing and shrinking", () => {
  void it("promotes all incoming members in one change, after they stayed caught up for a time", () => {
    const members = { ...HEALTHY, d: { is: "learner" }, e: { is: "learner" } } as const;
    const grow = (step: string, since: number): Scene => ({
      spec: { voters: 5 },
      members,
      status: {
        operation: operation({
          kind: "Grow",
          step,
          incoming: ["d", "e"],
          stepSince: toStamp(NOW_MS - since),
        }),
      },
    });
    assert.equal(gist(decide(grow("catch-up", 60_000))), "Grow/settle");
    assert.equal(gist(decide(grow("settle", 2_000))), "Grow/settle");
    const decision = decide(grow("settle", 6_000));
    assert.ok(decision.action?.kind === "change-membership");
    assert.deepEqual(decision.action.change, { plannedOn: 70, promote: [4, 5], demote: [], remove: [] });
  });

  void it("removes two non-leaders in one change, after the leader is another", () => {
    const members = {
      a: { is: "leader" },
      b: { is: "voter" },
      c: { is: "voter" },
      d: { is: "voter" },
      e: { is: "voter" },
    } as const;
    const begun = decide({ spec: { voters: 3 }, members });
    assert.equal(begun.status.operation?.outgoing?.includes("a"), false);
    const shrink = (outgoing: readonly string[]): Decision =>
      decide({
        spec: { voters: 3 },
        members,
        status: { operation: operation({ kind: "Shrink", outgoing }) },
      });
    assert.equal(gist(shrink(["a", "b"])), "transfer-leadership");
    const decision = shrink(["d", "e"]);
    assert.ok(decision.action?.kind === "change-membership");
    assert.deepEqual(decision.action.change.remove, [4, 5]);
  });

  void it("gives up when the spec asks for another number meanwhile", () => {
    const decision = decide({
      members: { ...HEALTHY, d: { is: "learner" }, e: { is: "learner" } },
      status: { operation: operation({ kind: "Grow", incoming: ["d", "e"] }) },
    });
    assert.equal(decision.status.operation, undefined);
    assert.match(decision.status.lastOperation?.result ?? "", /^Cancelled: the spec asks for 3/);
  });
});

void describe("replacing a voter", () => {
  const replace = (extra: Partial<OperationStatus> = {}): CoordinationCellStatus => ({
    operation: operation({ kind: "Replace", trigger: "Deleted", outgoing: ["c"], incoming: ["d"], ...extra }),
  });

  void it("begins when somebody deletes its CellMember, and keeps the member until then", () => {
    const decision = decide({ members: { ...HEALTHY, c: { is: "voter", deleting: true } } });
    assert.equal(gist(decision), "Replace/begin");
    assert.deepEqual(decision.status.operation?.outgoing, ["c"]);
    assert.equal(decision.status.operation.trigger, "Deleted");
  });

  void it("makes the newcomer in the old one's zone, on its host if need be", () => {
    const decision = decide({
      members: { ...HEALTHY, c: { is: "voter", deleting: true } },
      status: replace(),
    });
    assert.ok(decision.action?.kind === "create-member");
    assert.equal(decision.action.zone, "c");
    assert.equal(decision.action.replaces, "c");
  });

  void it("raises the PodDisruptionBudget to all voters before the change", () => {
    const decision = decide({
      members: { ...HEALTHY, c: { is: "voter", deleting: true } },
      status: replace(),
      over: { disruptionBudget: 2 },
    });
    assert.ok(decision.action?.kind === "apply-shared");
    assert.equal(decision.action.disruptionMinAvailable, 3);
  });

  void it("makes one change: the new one in, the old one out", () => {
    const decision = decide({
      members: { ...HEALTHY, d: { is: "learner" } },
      status: replace({ step: "settle" }),
    });
    assert.ok(decision.action?.kind === "change-membership");
    assert.deepEqual(decision.action.change, { plannedOn: 70, promote: [4], demote: [], remove: [3] });
  });

  void it("moves leadership away first", () => {
    const decision = decide({
      members: { ...HEALTHY, d: { is: "learner" } },
      status: replace({ step: "settle", outgoing: ["a"] }),
    });
    assert.equal(gist(decision), "transfer-leadership");
  });

  void it("waits while another voter is sick and the outgoing one is well", () => {
    const decision = decide({
      members: { ...HEALTHY, b: { is: "voter", answers: false, silentMs: 30_000 }, d: { is: "learner" } },
      status: replace({ step: "settle" }),
    });
    assert.equal(decision.action, undefined);
    assert.match(decision.status.operation?.message ?? "", /b is not healthy|only/);
  });

  void it("releases the old member only when a majority says that it has the new configuration", () => {
    const made = (known: number): Scene => ({
      members: {
        a: { is: "leader", status: { configurationIndex: 70 } },
        b: { is: "voter", status: { configurationIndex: known } },
        d: { is: "voter", id: 4, status: { configurationIndex: known } },
        c: { deleting: true, pod: "missing", answers: false },
      },
      status: { ...replace({ step: "change" }), members: [{ name: "c", id: 3, role: "Voter", ready: true }] },
    });
    assert.equal(decide(made(69)).action, undefined);
    const decision = decide(made(70));
    assert.ok(decision.action?.kind === "release-member");
    assert.equal(decision.action.member, "c");
    assert.equal(decision.action.deleteClaim, true);
  });

  void it("does not wait for a pod on a dead node to disappear", () => {
    const decision = decide({
      members: {
        a: { is: "leader" },
        b: { is: "voter" },
        d: { is: "voter", id: 4 },
        c: { deleting: true, pod: { terminating: true, labels: {} }, nodeReady: false, answers: false },
      },
      status: replace({ step: "change" }),
    });
    assert.equal(gist(decision), "release-member c");
  });

  void it("keeps the volume under reclaimPolicy Retain", () => {
    const decision = decide({
      spec: { storage: { size: "1Gi", reclaimPolicy: "Retain" } },
      members: {
        a: { is: "leader" },
        b: { is: "voter" },
        d: { is: "voter", id: 4 },
        c: { deleting: true, pod: "missing", answers: false },
      },
      status: { ...replace({ step: "change" }), members: [{ name: "c", id: 3, role: "Voter", ready: true }] },
    });
    assert.ok(decision.action?.kind === "release-member");
    assert.equal(decision.action.deleteClaim, false);
  });

  void it("is cancelled when the lost member comes back before the change, and the learner is dropped", () => {
    const members = { ...HEALTHY, d: { is: "learner" } } as const;
    const cancelled = decide({ members, status: replace({ trigger: "Lost" }) });
    assert.equal(cancelled.status.operation, undefined);
    assert.match(cancelled.status.lastOperation?.result ?? "", /^Cancelled: c is well again/);
    const dropped = decide({ members, status: cancelled.status });
    assert.ok(dropped.action?.kind === "change-membership");
    assert.deepEqual(dropped.action.change.remove, [4]);
  });

  void it("is aborted after its deadline, and the next try waits", () => {
    const members = { ...HEALTHY, c: { is: "voter", deleting: true }, d: { answers: false } } as const;
    const aborted = decide({ members, status: replace({ deadline: ago(1) }) });
    assert.match(aborted.status.lastOperation?.result ?? "", /^Aborted/);
    const again = decide({
      members: { ...HEALTHY, c: { is: "voter", deleting: true } },
      status: { ...aborted.status },
    });
    assert.equal(again.status.operation, undefined);
    assert.match(conditionOf(again, "Reconciling").message, /aborted; the next begins in 30 s/);
  });
});

void describe("automatic replacement", () => {
  const lost = { is: "voter", answers: false, silentMs: 11 * 60_000 } as const;
  const replaced = (from: Scene): boolean => decide(from).status.operation?.kind === "Replace";

  void it("waits for the loss to last as long as the policy says", () => {
    assert.equal(replaced({ members: { ...HEALTHY, c: { ...lost, silentMs: 9 * 60_000 } } }), false);
    assert.equal(replaced({ members: { ...HEALTHY, c: lost } }), true);
  });

  void it("counts a loss on through a change of leaders", () => {
    const members = [{ name: "c", id: 3, role: "Voter", ready: false, lostSince: ago(12) }] as const;
    assert.equal(
      replaced({ members: { ...HEALTHY, c: { ...lost, silentMs: 5_000 } }, status: { members } }),
      true,
    );
  });

  void it("does not wait when the Node object is gone", () => {
    assert.equal(replaced({ members: { ...HEALTHY, c: { ...lost, silentMs: 4_000, node: "gone" } } }), true);
  });

  void it("happens once an hour", () => {
    const status = { lastAutomaticReplacement: ago(30) };
    assert.equal(replaced({ members: { ...HEALTHY, c: lost }, status }), false);
    assert.equal(
      replaced({ members: { ...HEALTHY, c: lost }, status: { lastAutomaticReplacement: ago(61) } }),
      true,
    );
  });

  void it("does not happen with mode Never, and the condition says what to do", () => {
    const decision = decide({
      spec: { replacementPolicy: { mode: "Never", after: "10m", slowDisk: "Report" } },
      members: { ...HEALTHY, c: lost },
    });
    assert.equal(decision.status.operation, undefined);
    assert.match(conditionOf(decision, "Degraded").message, /only by a CellOperation/);
  });

  void it("treats a pod that waits for its volume's node like any loss", () => {
    const evicted = { ...lost, pod: { node: undefined, ready: false, phase: "Pending" } } as const;
    assert.equal(replaced({ members: { ...HEALTHY, c: evicted } }), true);
  });

  void it("says where no node is left", () => {
    const decision = decide({
      members: { ...HEALTHY, c: { ...lost, node: "gone" } },
      over: { nodes: [nodeOf("node-a", "a"), nodeOf("node-b", "b")] },
    });
    assert.equal(decision.status.operation, undefined);
    assert.equal(conditionOf(decision, "Stalled").reason, "Unschedulable");
  });

  void it("replaces a slow disk only when the policy says so", () => {
    const slow = { is: "voter", status: { syncP90Us: 900_000 } } as const;
    const members = [{ name: "c", id: 3, role: "Voter", ready: true, slowSince: ago(11) }] as const;
    const reported = decide({ members: { ...HEALTHY, c: slow }, status: { members } });
    assert.equal(reported.status.operation, undefined);
    assert.equal(conditionOf(reported, "Degraded").reason, "SlowDisk");
    const spec = { replacementPolicy: { mode: "AfterLoss", after: "10m", slowDisk: "Replace" } } as const;
    assert.equal(replaced({ spec, members: { ...HEALTHY, c: slow }, status: { members } }), true);
  });
});

void describe("rolling", () => {
  const rolling = { operation: operation({ kind: "Roll", step: "wait" }) };

  void it("restarts followers first, one at a time", () => {
    const members = {
      a: { is: "leader", outdated: true },
      b: { is: "voter", outdated: true },
      c: { is: "voter" },
    } as const;
    assert.equal(gist(decide({ members, status: rolling })), "delete-pod b");
  });

  void it("hands leadership over before the leader is restarted, last", () => {
    const decision = decide({
      members: { ...HEALTHY, a: { is: "leader", outdated: true } },
      status: rolling,
    });
    assert.equal(gist(decision), "transfer-leadership");
  });

  void it("waits until the one before has been ready for minReadySeconds", () => {
    const decision = decide({
      members: {
        ...HEALTHY,
        b: { is: "voter", outdated: true },
        c: { is: "voter", pod: { readySinceMs: NOW_MS - 3_000 } },
      },
      status: rolling,
    });
    assert.equal(gist(decision), "Roll/wait");
  });

  void it("stops at the first that does not start, and names the image", () => {
    const bad = { reason: "ImagePullBackOff", message: "v9 does not exist" };
    const decision = decide({
      members: {
        a: { is: "leader", outdated: true },
        b: { is: "voter", outdated: true },
        c: { is: "voter", answers: false, silentMs: 20 * 60_000, pod: { trouble: bad } },
      },
      status: { operation: operation({ kind: "Roll", step: "wait", outgoing: ["c"] }) },
    });
    assert.equal(gist(decision), "Roll/wait");
    assert.equal(conditionOf(decision, "Stalled").reason, "ImagePullBackOff");
  });

  void it("lets a fix through to the member that does not start", () => {
    const bad = { reason: "ImagePullBackOff", message: "v9 does not exist" };
    const decision = decide({
      members: {
        a: { is: "leader", outdated: true },
        b: { is: "voter", outdated: true },
        c: { is: "voter", outdated: true, answers: false, silentMs: 60_000, pod: { trouble: bad } },
      },
      status: rolling,
    });
    assert.equal(gist(decision), "delete-pod c");
  });

  void it("lets a fix through even when nobody can prove what is current", () => {
    const bad = { reason: "ImagePullBackOff", message: "v9 does not exist" };
    const decision = decide({
      spec: { voters: 1 },
      members: { a: { is: "leader", outdated: true, answers: false, pod: { trouble: bad } } },
      status: rolling,
      blind: true,
    });
    assert.equal(gist(decision), "delete-pod a");
  });

  void it("never touches a healthy voter while another is sick", () => {
    const decision = decide({
      members: {
        a: { is: "leader", outdated: true },
        b: { is: "voter", outdated: true },
        c: { is: "voter", answers: false, silentMs: 4_000 },
      },
      status: rolling,
    });
    assert.equal(decision.action, undefined);
  });

  void it("waits for its turn in the fleet", () => {
    const decision = decide({
      members: { ...HEALTHY, b: { is: "voter", outdated: true } },
      over: { mayRoll: false },
    });
    assert.equal(decision.status.operation, undefined);
    assert.equal(conditionOf(decision, "Reconciling").reason, "WaitingToRoll");
  });

  void it("does not begin by itself with mode Manual", () => {
    const decision = decide({
      spec: { updatePolicy: { mode: "Manual", minReadySeconds: 10 } },
      members: { ...HEALTHY, b: { is: "voter", outdated: true } },
    });
    assert.equal(decision.status.operation, undefined);
    assert.match(conditionOf(decision, "UpToDate").message, /Manual/);
  });

  void it("raises the format version last, when every member can apply it", () => {
    const newer = { formatVersionMax: 2 };
    const members = {
      a: { is: "leader", status: newer },
      b: { is: "voter", status: newer },
      c: { is: "voter", status: newer },
    } as const;
    const decision = decide({ members });
    assert.deepEqual(decision.action, { kind: "raise-format", version: 2, plannedOn: 70 });
    assert.equal(gist(decide({ members: { ...members, c: { is: "voter" } } })), "nothing");
  });
});
