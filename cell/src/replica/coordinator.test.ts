import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type {
  ClientId,
  Failure,
  LeaseId,
  Mutation,
  MutationOutcome,
  Read,
  ReadOutcome,
  RequestIdentity,
  Revision,
} from "@lockstep/gateway/coordinator";
import { ADMISSION_DEFAULTS } from "../admission/admission.ts";
import type { AdmissionLimits } from "../admission/admission.ts";
import type { LogIndex } from "../raft/types.ts";
import { createSessionKeeper } from "../session/index.ts";
import type { Transport } from "../transport/types.ts";
import { CellCoordinator } from "./coordinator.ts";
import { failures } from "./failures.ts";
import {
  decodeForwarded,
  decodeMutationAnswer,
  encodeForwarded,
  encodeMutationAnswer,
} from "./forwarding.ts";
import { Cluster } from "./testing/cluster.ts";

type Answer = Uint8Array | undefined | "unsent";

interface Asked {
  readonly to: number;
  readonly body: Uint8Array;
  readonly timeoutMs: number;
  readonly answer: (answer: Answer) => void;
}

const HOUR_MS = 3_600_000;
const ONCE: RequestIdentity = { kind: "client", clientId: 1 as ClientId, sequence: 1, acknowledgedBelow: 1 };

function mutation(identity: RequestIdentity, deadlineMs = 1000): Mutation {
  const operation = { kind: "put", key: Buffer.from("k"), value: Buffer.from("v") } as const;
  return { namespace: "default", epoch: 0, identity, operation, deadlineMs };
}

function refusal(failure: Failure): Uint8Array {
  return encodeMutationAnswer({ outcome: { ok: false, failure }, appliedIndex: 0 as LogIndex });
}

/** Member `id` of a cluster led by member 1; what it forwards is answered by the test. */
class Door {
  readonly cluster = new Cluster();
  readonly asked: Asked[] = [];
  readonly answers: string[] = [];
  readonly coordinator: CellCoordinator;
  reachable: number[] = [1, 2, 3];
  readonly #tasks: (() => void)[] = [];

  constructor(id: number, admission: AdmissionLimits = ADMISSION_DEFAULTS) {
    this.cluster.elect(1);
    this.cluster.pass(2);
    const { replica, leadership } = this.cluster.member(id);
    const transport: Pick<Transport, "request" | "connected"> = {
      request: (to, body, timeoutMs, answer) => void this.asked.push({ to, body, timeoutMs, answer }),
      connected: () => this.reachable as never,
    };
    this.coordinator = new CellCoordinator({
      changeMembership: () => Promise.resolve(undefined),
      ...{ replica, leadership, admission },
      transport: transport as Transport,
      sessions: createSessionKeeper({
        ...{ electionTimeoutMs: 100, checkpointIntervalMs: 1000, expireBatchMax: 1, lateTickMs: 50 },
      }),
      watchesMax: 1,
      soon: (task) => void this.#tasks.push(task),
    });
  }

  mutate(identity: RequestIdentity, deadlineMs?: number): void {
    this.coordinator.mutate(mutation(identity, deadlineMs), (outcome) => this.#told(outcome));
    this.run();
  }

  read(read: Partial<Read>): void {
    const operation = { kind: "range", range: { key: Buffer.from("k") } } as const;
    this.coordinator.read(
      { namespace: "default", epoch: 0, operation, consistency: "serializable", ...read },
      (outcome) => this.#told(outcome),
    );
    this.run();
  }

  /** The latest forwarded request gets this answer. */
  answer(answer: Answer): void {
    this.asked.at(-1)?.answer(answer);
    this.run();
  }

  pass(ticks: number): void {
    this.cluster.pass(ticks);
    this.run();
  }

  run(): void {
    while (this.#tasks.length > 0) for (const task of this.#tasks.splice(0)) task();
    this.cluster.settle();
  }

  #told(outcome: MutationOutcome | ReadOutcome): void {
    this.answers.push(outcome.ok ? "ok" : `${outcome.failure.code} ${outcome.failure.outcome}`);
  }
}

describe("a request at a member that does not lead", () => {
  it("is asked again when it certainly did not reach a log", () => {
    const door = new Door(2);
    door.mutate({ kind: "none" });
    door.answer("unsent");
    door.pass(6);
    assert.equal(door.asked.length, 2);
    door.answer(refusal(failures.leaderChanged()));
    door.pass(6);
    assert.equal(door.asked.length, 3);
    assert.deepEqual(door.answers, []);
  });

  it("without a request id is never sent again once its answer is lost", () => {
    const door = new Door(2);
    door.mutate({ kind: "none" });
    door.answer(undefined);
    assert.deepEqual(door.answers, ["leader-changed unknown"]);
    door.pass(6);
    assert.equal(door.asked.length, 1);
  });

  it("stays uncertain after a lost answer, whatever a later attempt is refused for", () => {
    for (const failure of [
      failures.overloaded("much"),
      failures.noSpace(),
      failures.shuttingDown("not-applied"),
    ]) {
      const door = new Door(2);
      door.mutate(ONCE);
      door.answer(undefined);
      door.pass(6);
      door.answer(refusal(failure));
      assert.deepEqual(door.answers, [`${failure.code} unknown`]);
    }
  });

  it("stays uncertain when it is given up while it waits, at its deadline and at shutdown", () => {
    const late = new Door(2);
    late.mutate(ONCE, 50);
    late.answer(undefined);
    late.reachable = [];
    late.pass(12);
    assert.deepEqual(late.answers, ["no-leader unknown"]);

    const closed = new Door(2);
    closed.mutate(ONCE);
    closed.answer(undefined);
    closed.coordinator.close();
    assert.deepEqual(closed.answers, ["shutting-down unknown"]);
  });

  it("is not encoded over and over for a leader that cannot be reached", () => {
    const door = new Door(2);
    door.reachable = [];
    door.mutate(ONCE);
    door.answer("unsent");
    door.pass(20);
    assert.equal(door.asked.length, 1);
    door.reachable = [1];
    door.pass(6);
    assert.equal(door.asked.length, 2);
  });

  it("is refused where it came in when the log could not hold it, as the leader would", () => {
    for (const member of [1, 2]) {
      const door = new Door(member);
      const operation = { kind: "compact", revision: 1.5 as Revision } as const;
      const answers: MutationOutcome[] = [];
      door.coordinator.mutate({ ...mutation({ kind: "none" }), operation }, (outcome) =>
        answers.push(outcome),
      );
      door.run();
      assert.deepEqual(
        answers.map((outcome) => !outcome.ok && outcome.failure.code),
        ["invalid-argument"],
      );
    }
  });

  it("S3: asks with a time-out that a timer can hold, and with the caller's epoch", () => {
    const door = new Door(2);
    const operation = { kind: "lease-time-to-live", leaseId: "1" as LeaseId } as const;
    door.read({ operation, epoch: 7, deadlineMs: 2 ** 32 - 1 });
    const asked = door.asked[0];
    assert.ok(asked !== undefined && asked.timeoutMs <= HOUR_MS);
    const forwarded = decodeForwarded(asked.body);
    assert.ok(
      forwarded.kind === "lease" && forwarded.epoch === 7 && forwarded.deadlineMs === asked.timeoutMs,
    );
  });
});

describe("the answer to a write that went through a member", () => {
  const done = (appliedIndex: number): Uint8Array => {
    const result = { kind: "compact", revision: 1 as Revision } as const;
    const outcome: MutationOutcome = { ok: true, result, replayed: false };
    return encodeMutationAnswer({ outcome, appliedIndex: appliedIndex as LogIndex });
  };
  const applied = (door: Door): number => door.cluster.member(2).replica.parts.state.appliedIndex;

  it("comes once the write is applied there, so that its writer sees it in what it asks next", () => {
    const door = new Door(2);
    const target = applied(door) + 1;
    door.mutate(ONCE);
    door.answer(done(target));
    assert.deepEqual(door.answers, []);
    door.cluster.member(1).put("k");
    door.pass(4);
    assert.ok(applied(door) >= target);
    assert.deepEqual(door.answers, ["ok"]);
    door.mutate(ONCE);
    door.answer(done(target));
    assert.deepEqual(door.answers, ["ok", "ok"]);
  });

  it("does not wait for a member that is far behind, nor beyond the caller's deadline, nor for one that stops", () => {
    const door = new Door(2);
    door.mutate(ONCE, 50);
    door.answer(done(applied(door) + 1_000_000));
    assert.deepEqual(door.answers, []);
    door.pass(12);
    assert.deepEqual(door.answers, ["ok"]);

    const closed = new Door(2);
    closed.mutate(ONCE);
    closed.answer(done(applied(closed) + 1_000_000));
    closed.coordinator.close();
    assert.deepEqual(closed.answers, ["ok"]);
  });
});

describe("a leader that shuts down", () => {
  it("refuses what others still forward to it, certainly not applied", () => {
    const door = new Door(1);
    door.coordinator.close();
    const answers: Uint8Array[] = [];
    const body = encodeForwarded({ kind: "mutate", mutation: mutation(ONCE) });
    door.coordinator.forwarded(body, (answer) => answers.push(answer));
    door.run();
    const outcomes = answers.map((body) => decodeMutationAnswer(body).outcome);
    assert.deepEqual(
      outcomes.map((outcome) => !outcome.ok && `${outcome.failure.code} ${outcome.failure.outcome}`),
      ["leader-changed not-applied"],
    );
  });
});

describe("a read of a later revision", () => {
  it("is served by the apply that reaches it", () => {
    const door = new Door(2);
    door.read({ minRevision: 2 as Revision });
    assert.deepEqual(door.answers, []);
    door.cluster.member(1).put("k");
    door.cluster.pass(3);
    assert.deepEqual(door.answers, ["ok"]);
  });

  it("counts against the bound of waiting reads, and what need not wait is never refused", () => {
    const door = new Door(2, { ...ADMISSION_DEFAULTS, readsPendingMax: 2 });
    for (let at = 0; at < 3; at += 1) door.read({ minRevision: 9 as Revision });
    assert.deepEqual(door.answers, ["overloaded not-applied"]);
    door.read({});
    assert.deepEqual(door.answers.slice(1), ["ok"]);
  });
});
