// Packets between a client and the cell are dropped, with both ends up and nobody told: A3 of docs/complaints.md.
import { connect, LockstepError, type Client } from "@lockstep/client";
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import { PASS } from "../support/proxied-link.ts";
import { until } from "../support/until.ts";

const ROOT = join(import.meta.dirname, "../..");
const TTL_MS = 4_000;
const PUT_DEADLINE_MS = 500;
const PUT_EVERY_MS = 20;

/** By the clock that all processes of a machine share. */
function nowMs(): number {
  return Number(process.hrtime.bigint() / 1_000n) / 1_000;
}

/** What the process that waits for the lock tells, a line each. */
type Told =
  | { readonly kind: "waits" }
  | { readonly kind: "freed"; readonly cause: string; readonly atMs: number }
  | { readonly kind: "acquired"; readonly token: number; readonly atMs: number };

/** Another process, with connections of its own: it waits for the lock, and holds it until it is ended. */
const WAITER = `
  import { connect } from "@lockstep/client";
  const [name, ...endpoints] = process.argv.slice(1);
  const nowMs = () => Number(process.hrtime.bigint() / 1_000n) / 1_000;
  const tell = (told) => console.log(JSON.stringify(told));
  const client = await connect({ endpoints });
  const session = await client.session({ ttlMs: 10_000 });
  const lock = client.lock(name);
  const watch = client.watch(lock.key, { omit: "put" });
  await watch.created;
  const waiting = lock.acquire({ session });
  tell({ kind: "waits" });
  for await (const { cause } of watch) {
    tell({ kind: "freed", cause, atMs: nowMs() });
    break;
  }
  const { token } = await waiting;
  tell({ kind: "acquired", token, atMs: nowMs() });
  process.stdin.resume();
`;

class Waiter {
  readonly #child: ChildProcess;
  readonly #told: Told[] = [];

  constructor(name: string, endpoints: readonly string[]) {
    const args = ["--input-type=module-typescript", "--eval", WAITER, name, ...endpoints];
    this.#child = spawn(process.execPath, args, { cwd: ROOT, stdio: ["pipe", "pipe", "inherit"] });
    assert.ok(this.#child.stdout !== null);
    createInterface(this.#child.stdout).on("line", (line) => this.#told.push(JSON.parse(line) as Told));
  }

  told<K extends Told["kind"]>(kind: K): Promise<Extract<Told, { kind: K }>> {
    return until(`the other process says that it has ${kind}`, () =>
      this.#told.find((told): told is Extract<Told, { kind: K }> => told.kind === kind),
    );
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null) return;
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await exited;
  }
}

type PutOutcome = "applied" | "not-applied" | "unknown";

/** Puts one key after the other, many at a time, and keeps what it is told of each. */
class Putter {
  readonly outcomes: Map<string, PutOutcome> = new Map<string, PutOutcome>();
  readonly #client: Client;
  readonly #timer: NodeJS.Timeout;
  readonly #open = new Set<Promise<void>>();
  #count = 0;

  constructor(client: Client) {
    this.#client = client;
    this.#timer = setInterval(() => this.#put(), PUT_EVERY_MS);
  }

  having(outcome: PutOutcome): number {
    return [...this.outcomes.values()].filter((other) => other === outcome).length;
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all(this.#open);
  }

  #put(): void {
    const key = `/puts/${String((this.#count += 1))}`;
    const put = this.#client.put(key, key, { deadlineMs: PUT_DEADLINE_MS }).then(
      () => void this.outcomes.set(key, "applied"),
      (error: unknown) => {
        assert.ok(error instanceof LockstepError);
        this.outcomes.set(key, error.outcome);
      },
    );
    this.#open.add(put);
    void put.finally(() => this.#open.delete(put));
  }
}

describe("packets between a client and the cell are dropped (R=3)", () => {
  let cell: TestCell;
  before(async () => {
    cell = await TestCell.start(3, { proxiedClients: true });
  });
  after(async () => {
    await cell.stop();
  });

  /** Of this process alone; others go on. */
  function drop(dropping: boolean): void {
    cell.shapeClients((pid) => (dropping && pid === process.pid ? { kind: "stall" } : PASS));
  }

  it("A3: the holder has stopped by its own clock before the lease ends, who waits elsewhere gets the lock, and no outcome is a lie", async () => {
    await using client = await connect({ endpoints: cell.endpoints });
    const session = await client.session({ ttlMs: TTL_MS });
    const lock = await client.lock("l", { session });
    let stoppedAtMs = Infinity;
    lock.held.addEventListener("abort", () => (stoppedAtMs = nowMs()), { once: true });
    const waiter = new Waiter("l", cell.endpoints);
    const putter = new Putter(client);
    try {
      await waiter.told("waits");
      await until("puts are answered", () => putter.having("applied") > 10 || undefined);
      lock.assertHeld();
      drop(true);

      const freed = await waiter.told("freed");
      const next = await waiter.told("acquired");
      assert.equal(freed.cause, "lease-expired");
      assert.ok(
        stoppedAtMs < freed.atMs,
        `it stopped ${String(stoppedAtMs - freed.atMs)} ms after the lease's end`,
      );
      assert.throws(() => lock.assertHeld(), { code: "not-held" });
      assert.throws(() => session.assertAlive(), { code: "session-lost", outcome: "not-applied" });
      assert.ok(next.token > lock.token);

      const appliedBefore = putter.having("applied");
      drop(false);
      await until("puts are answered again", () => putter.having("applied") > appliedBefore || undefined);
      await putter.stop();
      const { succeeded } = await client.txn({
        compares: lock.conditions,
        success: [{ put: { key: "/puts/stale", value: "" } }],
      });
      assert.ok(!succeeded, "what the former holder does is refused");
      const { kvs } = await client.range({ prefix: "/puts/" }, { keysOnly: true });
      const there = new Set(kvs.map(({ keyText }) => keyText));
      for (const [key, outcome] of putter.outcomes) {
        if (outcome !== "unknown") assert.equal(there.has(key), outcome === "applied", `${key}: ${outcome}`);
      }
      assert.ok(putter.having("unknown") > 0, "what was under way is not known");
    } finally {
      drop(false);
      await putter.stop();
      await waiter.stop();
    }
  });

  it("A3: what is dropped for less than the session has left costs nobody the lock, and a call waits instead of failing", async () => {
    await using client = await connect({ endpoints: cell.endpoints });
    const session = await client.session({ ttlMs: 20_000 });
    const lock = await client.lock("m", { session });
    try {
      drop(true);
      const late = client.put("/late", "1", { deadlineMs: 20_000 });
      const quick = client.put("/quick", "1", { deadlineMs: PUT_DEADLINE_MS });
      await assert.rejects(quick, { code: "deadline-exceeded", outcome: "unknown" });
      drop(false);
      assert.equal((await late).version, 1);
      lock.assertHeld();
      assert.equal((await client.get(lock.key))?.createRevision, lock.token);
      await lock.release();
    } finally {
      drop(false);
    }
  });
});
