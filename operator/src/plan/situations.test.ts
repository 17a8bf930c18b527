import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ago, conditionOf, decide, gist, HEALTHY } from "./testing/decide.ts";
import { operation } from "./testing/scene.ts";

void describe("when little is seen", () => {
  void it("does nothing and says Unknown when nobody answers", () => {
    const silent = { answers: false } as const;
    const decision = decide({
      members: {
        a: { ...HEALTHY.a, ...silent },
        b: { ...HEALTHY.b, ...silent },
        c: { is: "voter", deleting: true, ...silent },
      },
      blind: true,
    });
    assert.equal(decision.action, undefined);
    assert.equal(conditionOf(decision, "Ready").status, "Unknown");
    assert.equal(conditionOf(decision, "Available").status, "Unknown");
    assert.equal(conditionOf(decision, "QuorumHealthy").reason, "NobodyAnswers");
  });

  void it("brings back pods on their own volumes without a quorum", () => {
    const decision = decide({
      members: { ...HEALTHY, c: { is: "voter", pod: "missing", answers: false } },
      status: { members: [{ name: "c", id: 3, role: "Voter", ready: false }] },
      blind: true,
    });
    assert.ok(decision.action?.kind === "create-pod");
    assert.equal(decision.action.mode.kind, "existing");
  });

  void it("never makes a new volume for a member that had one", () => {
    const decision = decide({
      members: { ...HEALTHY, c: { is: "voter", pod: "missing", claim: "missing", answers: false } },
    });
    assert.equal(decision.action, undefined);
  });

  void it("recreates a pod in a terminal phase on the same claim", () => {
    const decision = decide({
      members: { ...HEALTHY, c: { is: "voter", answers: false, pod: { phase: "Failed" } } },
    });
    assert.equal(gist(decision), "delete-pod c");
  });

  void it("waits for a joint configuration to be left, and starts nothing", () => {
    const decision = decide({ spec: { voters: 5 }, members: HEALTHY, joint: true });
    assert.equal(decision.action, undefined);
    assert.equal(decision.status.operation, undefined);
    assert.equal(conditionOf(decision, "Reconciling").reason, "JointConfiguration");
  });

  void it("asks for a person when the quorum does not come back", () => {
    const quorum = {
      type: "QuorumHealthy",
      status: "False",
      reason: "QuorumLost",
      message: "",
      lastTransitionTime: ago(6),
    } as const;
    const decision = decide({
      members: { ...HEALTHY, a: { is: "leader", answers: false } },
      status: { conditions: [quorum] },
      blind: true,
    });
    assert.equal(conditionOf(decision, "Stalled").reason, "QuorumLost");
    assert.match(conditionOf(decision, "Stalled").message, /spec.recovery/);
  });

  void it("changes nothing when another cell answers", () => {
    const decision = decide({ members: HEALTHY, status: { cellId: "id-0" } });
    assert.equal(decision.action, undefined);
    assert.equal(conditionOf(decision, "Stalled").reason, "CellIdMismatch");
  });

  void it("grows claims before anything else is well", () => {
    const decision = decide({
      spec: { storage: { size: "2Gi", reclaimPolicy: "Delete" } },
      members: HEALTHY,
      blind: true,
    });
    assert.deepEqual(decision.action, { kind: "grow-claim", member: "a", size: "2Gi" });
  });
});

void describe("recovery", () => {
  const quorum = (minutes: number) =>
    [
      {
        type: "QuorumHealthy",
        status: "False",
        reason: "QuorumLost",
        message: "",
        lastTransitionTime: ago(minutes),
      },
    ] as const;
  const members = {
    a: { is: "leader", answers: false },
    b: { is: "voter", answers: false },
    c: { is: "voter" },
  } as const;
  const spec = { recovery: { survivor: "c", cellId: "id-1" } };

  void it("begins only when the quorum has been lost for a while", () => {
    assert.equal(
      decide({ spec, members, blind: true, status: { conditions: quorum(0) } }).status.operation,
      undefined,
    );
    const decision = decide({ spec, members, blind: true, status: { conditions: quorum(2) } });
    assert.equal(gist(decision), "Recover/stop");
  });

  void it("does not stop a survivor whose volume is being deleted: the last copy would go with its pod", () => {
    const going = { ...members, c: { is: "voter", claim: { terminating: true } } } as const;
    const status = { conditions: quorum(2) };
    const decision = decide({ spec, members: going, blind: true, status });
    assert.equal(decision.action, undefined);
    assert.match(conditionOf(decision, "Stalled").message, /survivor c is being deleted/);
    const begun = {
      operation: operation({ kind: "Recover", step: "stop", incoming: ["c"], outgoing: ["a", "b"] }),
    };
    const later = decide({ spec, members: going, blind: true, status: begun });
    assert.equal(later.action, undefined);
    assert.match(later.status.lastOperation?.result ?? "", /^Aborted/);
  });

  void it("means nothing for a cell of another id", () => {
    const stale = { recovery: { survivor: "c", cellId: "id-0" } };
    assert.equal(
      decide({ spec: stale, members, blind: true, status: { conditions: quorum(2) } }).status.operation,
      undefined,
    );
  });

  void it("stops the others, then starts the survivor with the id that is given up", () => {
    const status = {
      operation: operation({ kind: "Recover", step: "stop", incoming: ["c"], outgoing: ["a", "b"] }),
    };
    assert.equal(gist(decide({ spec, members, blind: true, status })), "delete-pod a");
    const gone = { answers: false, pod: "missing" } as const;
    const stopped = {
      a: { is: "leader", ...gone },
      b: { is: "voter", ...gone },
      c: { is: "voter", ...gone },
    } as const;
    const decision = decide({ spec, members: stopped, blind: true, status });
    assert.ok(decision.action?.kind === "create-pod");
    assert.deepEqual(decision.action.mode, { kind: "recover", newName: "c", cellId: "id-1" });
  });
});

void describe("pause and deletion", () => {
  void it("changes nothing while paused, and says so", () => {
    const decision = decide({
      spec: { paused: true, voters: 5 },
      members: { ...HEALTHY, c: { is: "voter", pod: "missing", answers: false } },
    });
    assert.equal(decision.action, undefined);
    assert.equal(conditionOf(decision, "Paused").status, "True");
    assert.equal(decision.status.readyVoters, 2);
    assert.equal(decision.status.phase, "Paused");
  });

  void it("waits for tenants, and names them", () => {
    const decision = decide({ deleting: true, members: HEALTHY, over: { tenants: ["shop/carts"] } });
    assert.equal(decision.action, undefined);
    assert.match(conditionOf(decision, "Stalled").message, /shop\/carts/);
  });

  void it("keeps serving tenants until they are gone: what ended comes back, and nothing is changed", () => {
    const over = { tenants: ["shop/carts"] };
    const members = { ...HEALTHY, c: { is: "voter", pod: "missing", answers: false } } as const;
    const decision = decide({ deleting: true, spec: { voters: 5 }, members, over });
    assert.equal(gist(decision), "create-pod c");
    assert.equal(conditionOf(decision, "Stalled").reason, "TenantsExist");
    const certificates = { kind: "ready", message: "", notAfterMs: undefined, due: "issue" } as const;
    const renewing = decide({ deleting: true, members: HEALTHY, over: { ...over, certificates } });
    assert.equal(gist(renewing), "advance-certificates");
    const resting = decide({ deleting: true, spec: { voters: 5 }, members: HEALTHY, over });
    assert.deepEqual([resting.action, resting.status.operation], [undefined, undefined]);
    const paused = decide({ deleting: true, spec: { paused: true }, members, over });
    assert.equal(paused.action, undefined);
  });

  void it("takes the members away without asking the cell, even without a quorum", () => {
    assert.equal(gist(decide({ deleting: true, members: HEALTHY, blind: true })), "delete-member a");
    const a = { is: "leader", deleting: true } as const;
    assert.equal(gist(decide({ deleting: true, members: { a }, blind: true })), "release-member a");
    assert.equal(gist(decide({ deleting: true, status: { cellId: "id-1" } })), "release-cell");
  });

  void it("does not hold up a Kubernetes namespace that is being deleted, tenants or not", () => {
    const over = { namespaceTerminating: true, tenants: ["shop/carts"] };
    assert.equal(
      gist(decide({ deleting: true, members: { a: { is: "leader", deleting: true } }, over })),
      "release-member a",
    );
    assert.equal(
      gist(decide({ members: { ...HEALTHY, b: { is: "voter", deleting: true } }, over })),
      "release-member b",
    );
    assert.equal(decide({ over }).action, undefined);
  });
});

void describe("requests", () => {
  void it("replace a chosen member", () => {
    const requests = [{ cell: "cell", action: "Replace", member: "b" }] as const;
    const decision = decide({ members: HEALTHY, requests });
    assert.deepEqual(decision.status.operation?.outgoing, ["b"]);
    assert.equal(decision.status.operation.requestedBy, "wish-1");
    const running = decide({
      members: HEALTHY,
      requests,
      status: decision.status,
      over: { disruptionBudget: 3 },
    });
    assert.equal(running.action?.kind, "create-member");
  });

  void it("fail with the voters' names when they name nobody", () => {
    const decision = decide({
      members: HEALTHY,
      requests: [{ cell: "cell", action: "Replace", member: "z" }],
    });
    assert.ok(decision.action?.kind === "finish-request");
    assert.equal(decision.action.phase, "Failed");
    assert.match(decision.action.message, /a, b, c/);
  });

  void it("drain a node by replacing its member elsewhere, and succeed when nobody is left there", () => {
    const requests = [{ cell: "cell", action: "Drain", node: "node-b" }] as const;
    const begun = decide({ members: HEALTHY, requests });
    assert.equal(begun.status.operation?.trigger, "Drained");
    const made = decide({ members: HEALTHY, requests, status: begun.status, over: { disruptionBudget: 3 } });
    assert.ok(made.action?.kind === "create-member");
    assert.equal(made.action.replaces, undefined);
    const rest = { a: HEALTHY.a, c: HEALTHY.c };
    const over = decide({ members: { ...rest, d: { is: "voter" } }, requests });
    assert.ok(over.action?.kind === "finish-request");
    assert.equal(over.action.phase, "Succeeded");
  });

  void it("are cancelled by deleting them before the change", () => {
    const decision = decide({
      members: { ...HEALTHY, d: { is: "learner" } },
      status: {
        operation: operation({
          kind: "Replace",
          trigger: "Requested",
          requestedBy: "wish-1",
          outgoing: ["b"],
          incoming: ["d"],
        }),
      },
    });
    assert.match(
      decision.status.lastOperation?.result ?? "",
      /^Cancelled: the CellOperation wish-1 was deleted/,
    );
  });

  void it("transfer leadership and are answered when it moved", () => {
    const requests = [{ cell: "cell", action: "TransferLeadership", member: "b" }] as const;
    const under = operation({ kind: "Transfer", requestedBy: "wish-1", outgoing: ["a"], incoming: ["b"] });
    const asked = decide({ members: HEALTHY, requests, status: { operation: under } });
    assert.deepEqual(asked.action?.kind === "transfer-leadership" ? asked.action.to : undefined, 2);
    const moved = { a: { is: "voter" }, b: { is: "leader" }, c: { is: "voter" } } as const;
    const done = decide({ members: moved, requests, status: { operation: under } });
    assert.equal(done.status.lastOperation?.result, "Succeeded");
    const answered = decide({ members: moved, requests, status: done.status });
    assert.ok(answered.action?.kind === "finish-request");
    assert.equal(answered.action.phase, "Succeeded");
  });
});

void describe("the PodDisruptionBudget", () => {
  void it("comes back to the quorum at rest", () => {
    const decision = decide({ members: HEALTHY, over: { disruptionBudget: 3 } });
    assert.ok(decision.action?.kind === "apply-shared");
    assert.equal(decision.action.disruptionMinAvailable, 2);
  });

  void it("of one voter blocks drains, and the condition says so", () => {
    const decision = decide({ spec: { voters: 1 }, members: { a: { is: "leader" } } });
    assert.match(conditionOf(decision, "Available").message, /blocks drains/);
  });

  void it("does not count former members: their label goes before newcomers get theirs", () => {
    const decision = decide({
      members: {
        a: { is: "leader" },
        b: { is: "voter" },
        d: { is: "voter", id: 4, pod: { labels: { "lockstep.dev/role": "learner" } } },
        c: { deleting: true, answers: false },
      },
      status: {
        operation: operation({ kind: "Replace", outgoing: ["c"], incoming: ["d"], step: "change" }),
        members: [{ name: "c", id: 3, role: "Voter", ready: true }],
      },
    });
    assert.deepEqual(decision.action, { kind: "label-pod", member: "c", uid: "pod-c", role: "former" });
  });
});

void describe("what a person is told of a cell at rest", () => {
  void it("names voters outside of the zones that the spec allows now, and moves nobody", () => {
    const zones = ["b", "c", "d"];
    const decision = decide({
      spec: { topology: { zoneKey: "zone", hostSpread: "Required", zones } },
      members: HEALTHY,
    });
    assert.equal(decision.action, undefined);
    const spread = conditionOf(decision, "ZonesSpread");
    assert.deepEqual([spread.status, spread.reason], ["False", "OutsideZones"]);
    assert.match(spread.message, /^a is in a, .* b, c, d\. .*kubectl lockstep replace a$/);
  });

  void it("shows the lowest of the members' versions, whoever leads", () => {
    const versions = (leader: string, follower: string): string | undefined => {
      const [a, b] = [{ version: leader }, { version: follower }];
      const members = { a: { ...HEALTHY.a, status: a }, b: { ...HEALTHY.b, status: b } };
      return decide({ spec: { voters: 3 }, members }).status.version;
    };
    assert.equal(versions("0.10.0", "0.9.0"), "0.9.0");
    assert.equal(versions("0.8.0", "0.9.0"), "0.8.0");
  });

  void it("names the member whose volume is full, though all of them report the cell's alarm", () => {
    const withFree = (freeBytes: number): { readonly status: object } => ({
      status: { alarms: ["no-space"], freeBytes, volumeBytes: 1_000 },
    });
    const members = {
      a: { ...HEALTHY.a, ...withFree(900) },
      b: { ...HEALTHY.b, ...withFree(900) },
      c: { ...HEALTHY.c, ...withFree(1) },
    };
    const { reason, message } = conditionOf(decide({ members }), "Degraded");
    assert.equal(reason, "VolumeFull");
    assert.match(message, /^The volume of c is full/);
  });

  void it("tells when a cell's creation begins", () => {
    const { events } = decide({ members: {} });
    assert.deepEqual(
      events.map(({ reason }) => reason),
      ["CreateBegun"],
    );
  });
});
