// Owners whose process is stopped, whose machine sleeps, whose clock is set, or whose main loop is busy: real processes at a
// real cell. Each stops by itself before the cell gives the lock to anybody else.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "@lockstep/client";
import type { Client } from "@lockstep/client";
import { TestCell } from "../../support/cell.ts";
import { ClockLibrary, trueNowMs } from "../../support/clocks/shifted-clocks.ts";
import type { ShiftedClocks } from "../../support/clocks/shifted-clocks.ts";
import { PASS } from "../../support/proxied-link.ts";
import type { LinkRule } from "../../support/proxied-link.ts";
import type { OwnerOptions, OwnerOrder, OwnerReport } from "./owner-main.ts";

const MAIN = join(import.meta.dirname, "owner-main.ts");
const HOUR_MS = 3_600_000;
const SPIN_MS = 30_000;
const LATE: LinkRule = { kind: "late", delayMs: 850 };

const scratch = mkdtempSync(join(tmpdir(), "lockstep-clocks-"));
const library = await ClockLibrary.build(scratch);
const withClocks =
  library === undefined ? { skip: "there is no C compiler here, which moved clocks need" } : {};

class Owner {
  readonly clocks: ShiftedClocks | undefined;
  readonly #child: ChildProcess;
  readonly #reports: AsyncIterator<string>;

  constructor(options: OwnerOptions) {
    this.clocks = library?.clocks(join(scratch, `${options.lock}.clocks`));
    this.#child = spawn(process.execPath, [MAIN, JSON.stringify(options)], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, ...this.clocks?.env },
    });
    const { stdout } = this.#child;
    assert(stdout !== null);
    this.#reports = createInterface({ input: stdout })[Symbol.asyncIterator]();
  }

  /** The next thing it says, which must be this. */
  async next<W extends OwnerReport["what"]>(what: W): Promise<OwnerReport & { readonly what: W }> {
    const line = await this.#reports.next();
    assert(line.done !== true, `it ended before it said "${what}"`);
    const report = JSON.parse(line.value) as OwnerReport;
    assert.equal(report.what, what, line.value);
    return report as OwnerReport & { readonly what: W };
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  spin(ms: number): void {
    const order: OwnerOrder = { spinMs: ms };
    this.#child.stdin?.write(`${JSON.stringify(order)}\n`);
  }

  /** Stopped for a while. With `asleep` its machine's monotonic clock stands still meanwhile. */
  async stop(ms: number, how: "stopped" | "asleep" = "stopped"): Promise<void> {
    const started = performance.now();
    this.#child.kill("SIGSTOP");
    await sleep(ms);
    if (how === "asleep") this.clocks?.lose(performance.now() - started);
    this.#child.kill("SIGCONT");
  }

  end(): void {
    this.#child.kill("SIGKILL");
  }
}

describe("an owner's clocks", { concurrency: true }, () => {
  let cell: TestCell;
  let client: Client;
  const owners: Owner[] = [];
  const rules = new Map<number, LinkRule>();
  before(async () => {
    cell = await TestCell.start(1, { proxiedClients: true });
    client = await connect({ endpoints: cell.endpoints });
  });
  after(async () => {
    for (const owner of owners) owner.end();
    client.close();
    await cell.stop();
    rmSync(scratch, { recursive: true, force: true });
  });

  async function owning(lock: string, options: Omit<OwnerOptions, "endpoints" | "lock">): Promise<Owner> {
    const owner = new Owner({ ...options, lock, endpoints: cell.endpoints });
    owners.push(owner);
    await owner.next("owns");
    return owner;
  }

  /** @returns when somebody else had it, in true time. */
  async function taken(lock: string): Promise<number> {
    await using session = await client.session({ ttlMs: 10_000 });
    await using next = await client.lock(lock, { session });
    next.assertHeld();
    return trueNowMs();
  }

  function shape(owner: Owner, rule: LinkRule): void {
    rules.set(owner.pid, rule);
    cell.shapeClients((pid) => rules.get(pid) ?? PASS);
  }

  /** From now on it hears nothing, as a laptop that wakes up without a network: it has its clocks alone to go by. */
  function deafen(owner: Owner): void {
    shape(owner, { kind: "stall" });
  }

  async function assertStoppedBefore(owner: Owner, others: Promise<number>): Promise<void> {
    const [{ code, lastSureAtMs }, takenAtMs] = await Promise.all([owner.next("over"), others]);
    // What it throws depends on whether it looks before or after it has been told.
    assert.match(code, /^(session-lost|not-held)$/);
    assert(lastSureAtMs > 0 && lastSureAtMs < takenAtMs, `${String(lastSureAtMs)} ${String(takenAtMs)}`);
  }

  it("awake and deaf: it stops before others have it", async () => {
    const owner = await owning("deaf", { ttlMs: 2_000 });
    const others = taken("deaf");
    deafen(owner);
    await assertStoppedBefore(owner, others);
  });

  it("answered late, then stopped and deaf: its time counts from what it asked, not from the answer", async () => {
    const owner = await owning("late", { ttlMs: 3_000 });
    const others = taken("late");
    shape(owner, LATE);
    // Renewed since then, by answers that are all late; the last ones it reads when it goes on.
    await sleep(4_000);
    const stopped = owner.stop(2_000);
    await sleep(1_500);
    deafen(owner);
    await stopped;
    await assertStoppedBefore(owner, others);
  });

  it("stopped beyond its session: the first look afterwards says so", async () => {
    const owner = await owning("stopped", { ttlMs: 2_000 });
    const others = taken("stopped");
    deafen(owner);
    await owner.stop(5_000);
    await assertStoppedBefore(owner, others);
  });

  it(
    "asleep with its machine, whose monotonic clock stood still: the wall clock says so",
    withClocks,
    async () => {
      const owner = await owning("asleep", { ttlMs: 2_000 });
      const others = taken("asleep");
      deafen(owner);
      await owner.stop(5_000, "asleep");
      await assertStoppedBefore(owner, others);
    },
  );

  it("asleep for less than its session: it goes on owning it", withClocks, async () => {
    const owner = await owning("nap", { ttlMs: 6_000 });
    await owner.stop(500, "asleep");
    owner.spin(1);
    assert.equal((await owner.next("spun")).owns, true);
    await sleep(6_000);
    owner.spin(1);
    assert.equal((await owner.next("spun")).owns, true);
  });

  it(
    "its wall clock set forward by an hour: it stops at once, long before the cell",
    withClocks,
    async () => {
      const owner = await owning("forward", { ttlMs: 10_000 });
      const others = taken("forward");
      const jumpedAtMs = trueNowMs();
      owner.clocks?.jump(HOUR_MS);
      await assertStoppedBefore(owner, others);
      assert(trueNowMs() - jumpedAtMs >= 5_000, "the cell does not know of it");
    },
  );

  it("its wall clock set back by an hour: nothing is gained, nor lost", withClocks, async () => {
    const owner = await owning("back", { ttlMs: 2_000 });
    owner.clocks?.jump(-HOUR_MS);
    // Renewed by now, so that what the clocks have counted since is right again.
    await sleep(5_000);
    owner.spin(1);
    assert.equal((await owner.next("spun")).owns, true);
    const others = taken("back");
    deafen(owner);
    await owner.stop(5_000, "asleep");
    await assertStoppedBefore(owner, others);
  });

  it("a callback that spins for 30 s under a bound of 60 s loses nothing: its renewals have a thread of their own", async () => {
    const owner = await owning("spins", { ttlMs: 3_000, mainLoopStallMaxMs: 60_000 });
    const others = taken("spins");
    owner.spin(SPIN_MS);
    const { owns, atMs } = await owner.next("spun");
    assert.equal(owns, true);
    owner.end();
    assert(atMs < (await others), "nobody had it meanwhile");
  });

  it("by default such a callback gives it up after a session's time, and knows in the same turn", async () => {
    const owner = await owning("hangs", { ttlMs: 3_000 });
    const others = taken("hangs");
    owner.spin(SPIN_MS / 2);
    const { owns, atMs } = await owner.next("spun");
    assert.equal(owns, false);
    assert((await others) < atMs, "somebody else had it while it hung");
    const { lastSureAtMs } = await owner.next("over");
    assert(lastSureAtMs < (await others));
  });
});
