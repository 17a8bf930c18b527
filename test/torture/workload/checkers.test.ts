import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { Findings } from "../findings.ts";
import { CanonicalHistory } from "./canonical-history.ts";
import type { PlainEvent } from "./canonical-history.ts";
import { GuardedRegister } from "./guard.ts";
import { Ledger } from "./ledger.ts";

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
