import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { KeyOperation } from "../../linearizability/facts.ts";
import { compareAndSet } from "../../linearizability/words.ts";
import type { KeyInput, KeyOutput, Seen } from "../../linearizability/words.ts";
import { Findings } from "../findings.ts";
import { CanonicalHistory } from "./canonical-history.ts";
import type { PlainEvent } from "./canonical-history.ts";
import { GuardedRegister } from "./guard.ts";
import { Ledger } from "./ledger.ts";
import { checkWitness } from "./witness.ts";

const put = (key: string, value: string): PlainEvent => ({ kind: "put", key, value, cause: "client" });

/** Runs a check and tells which laws it found broken. */
async function broken(check: (findings: Findings) => Promise<void> | void): Promise<string[]> {
  const scratch = mkdtempSync(join(tmpdir(), "lockstep-findings-"));
  const findings = new Findings(scratch, () => undefined);
  await check(findings);
  await findings.close();
  rmSync(scratch, { recursive: true, force: true });
  return [...findings.violations.keys()];
}

describe("the ledger", () => {
  const history = new CanonicalHistory(
    [
      { revision: 2, events: [put("/a", "v1.w")] },
      { revision: 3, events: [put("/b", "v2.w")] },
      { revision: 4, events: [put("/c", "v2.w")] },
      { revision: 5, events: [{ kind: "delete", key: "/a", value: "", cause: "client" }] },
    ],
    5,
  );
  const check = (fill: (ledger: Ledger) => void): Promise<string[]> =>
    broken((findings) => {
      const ledger = new Ledger();
      fill(ledger);
      ledger.check(history, findings);
    });

  it("finds an acknowledged write that is not there, or not where it was said to be", async () => {
    assert.ok(
      (await check((ledger) => ledger.acknowledged("/z", "v9.w", 3))).includes(
        "acknowledged writes are there",
      ),
    );
    assert.ok(
      (await check((ledger) => ledger.acknowledged("/a", "v1.w", 3))).includes(
        "acknowledged writes are there",
      ),
    );
    assert.ok(
      !(await check((ledger) => ledger.acknowledged("/a", "v1.w", 2))).includes(
        "acknowledged writes are there",
      ),
    );
  });

  it("finds a write that happened twice", async () => {
    assert.deepEqual(await check(() => undefined), ["exactly once"]);
  });

  it("finds a refused write that happened; an unknown one may have", async () => {
    assert.ok((await check((ledger) => ledger.refused("v1.w"))).includes("refused means not applied"));
    assert.ok(!(await check((ledger) => ledger.unknown("v1.w"))).includes("refused means not applied"));
  });

  it("finds a read of what never was, and a wrong read of the past", async () => {
    assert.ok((await check((ledger) => ledger.seen("/a", "v1.w", 4))).includes("reads see what happened"));
    assert.ok((await check((ledger) => ledger.readAt("/a", 4, undefined))).includes("reads at a revision"));
    assert.deepEqual(await check((ledger) => ledger.readAt("/a", 5, undefined)), ["exactly once"]);
    assert.deepEqual(await check((ledger) => ledger.readAt("/a", 4, "v1.w")), ["exactly once"]);
  });
});

describe("the guarded register", () => {
  const claim = (revision: number, owner: string): { revision: number; events: PlainEvent[] } => ({
    revision,
    events: [put("/locks/l", JSON.stringify({ owner }))],
  });
  const gone = {
    revision: 15,
    events: [{ kind: "delete", key: "/locks/l", value: "", cause: "lease-expired" }],
  } as const;
  const history = new CanonicalHistory([claim(10, "a"), gone, claim(20, "b")], 20);
  const handover = (worker: string, token: number, atMs: number) =>
    ({ lock: "l", worker, token, what: "acquired", atMs }) as const;
  const write = (
    register: GuardedRegister,
    worker: string,
    token: number,
    sureUntilMs: number,
  ): Promise<Response> =>
    fetch(`http://127.0.0.1:${String(register.port)}/`, {
      method: "POST",
      body: JSON.stringify({ lock: "l", worker, token, sureUntilMs }),
    });

  it("refuses the token of an owner before the last one; its twin lets it through and counts it", async () => {
    const laws = await broken(async (findings) => {
      const register = await GuardedRegister.start(findings);
      register.handover(handover("a", 10, 0));
      register.handover(handover("b", 20, 100));
      assert.equal((await write(register, "a", 10, 50)).status, 200);
      assert.equal((await write(register, "b", 20, 200)).status, 200);
      assert.equal((await write(register, "a", 10, 0)).status, 409);
      assert.deepEqual([register.accepted, register.staleRefused, register.staleWithoutGuard], [2, 1, 1]);
      register.check(history);
      register.close();
    });
    assert.deepEqual(laws, []);
  });

  it("finds an owner that came while the one before was sure of its lock, and a token that is no claim", async () => {
    const laws = await broken(async (findings) => {
      const register = await GuardedRegister.start(findings);
      register.handover(handover("a", 10, 0));
      register.handover(handover("b", 20, 100));
      await write(register, "a", 10, 101);
      register.handover(handover("c", 19, 300));
      register.check(history);
      register.close();
    });
    assert.deepEqual(laws.sort(), ["one owner at a time", "tokens are claims"]);
  });
});

describe("the witness", () => {
  const history = new CanonicalHistory(
    [
      { revision: 2, events: [put("/r", "v1.a")] },
      { revision: 3, events: [put("/r", "v2.a")] },
      { revision: 4, events: [{ kind: "delete", key: "/r", value: "", cause: "client" }] },
    ],
    4,
  );
  const ok = (input: KeyInput, output: KeyOutput, from: number, to: number): KeyOperation => ({
    process: "p",
    input,
    invokedAt: from,
    outcome: { kind: "ok", output, returnedAt: to },
  });
  const put1 = ok({ kind: "put", key: "/r", value: "v1.a" }, { kind: "put", revision: 2 }, 0, 10);
  const put2 = ok({ kind: "put", key: "/r", value: "v2.a" }, { kind: "put", revision: 3 }, 5, 20);
  const seen = (value: string, modRevision: number): Seen => ({
    value,
    modRevision,
    createRevision: 2,
    version: modRevision - 1,
  });
  const get = (revision: number, found: Seen | null, from: number): KeyOperation =>
    ok({ kind: "get", key: "/r" }, { kind: "get", revision, found }, from, from + 1);

  it("takes answers that fit their revisions, in the order of real time", () => {
    const reads = [get(2, seen("v1.a", 2), 6), get(3, seen("v2.a", 3), 21), get(4, null, 30)];
    assert.deepEqual(checkWitness([put1, put2, ...reads], history), []);
  });

  it("finds an answer that does not fit its revision, and a place that goes back in real time", () => {
    assert.equal(checkWitness([put1, get(3, seen("v1.a", 2), 21)], history).length, 1);
    assert.equal(checkWitness([put1, put2, get(2, seen("v1.a", 2), 21)], history).length, 1, "a stale read");
    const late = ok({ kind: "put", key: "/r", value: "v1.a" }, { kind: "put", revision: 2 }, 21, 22);
    assert.equal(checkWitness([put2, late], history).length, 1, "a write before one that had ended");
  });

  it("finds a compare-and-set that should have failed, or should not", () => {
    const cas = (succeeded: boolean): KeyOperation =>
      ok(
        compareAndSet("/r", { value: "v1.a" }, "v2.a"),
        { kind: "txn", succeeded, revision: 3, responses: succeeded ? [{ kind: "put", revision: 3 }] : [] },
        12,
        20,
      );
    assert.deepEqual(checkWitness([put1, cas(true)], history), []);
    const wrong = compareAndSet("/r", { value: "v1.a" }, "v9.a");
    const failed = ok(wrong, { kind: "txn", succeeded: false, revision: 2, responses: [] }, 12, 20);
    assert.equal(checkWitness([put1, failed], history).length, 1);
  });
});
