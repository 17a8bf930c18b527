import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Entry } from "../raft/types.ts";
import { WalError } from "./error.ts";
import { verifyWal } from "./inspect.ts";
import { at, DIRECTORY, entry, hardState, openOn, seededRandom, settled } from "./testing/fixture.ts";
import { LogModel } from "./testing/log-model.ts";
import { MemoryDisk } from "./testing/memory-disk.ts";
import { type CrashMode, diskFault } from "./testing/memory-volume.ts";
import type { Wal, WalWrite } from "./types.ts";

const SEGMENT_BYTES = 2048;
const MODES: readonly CrashMode[] = ["lose", "keep", "tear"];

/** How a run of the process ends. */
type Ending = CrashMode | "kill" | "fail-then-crash" | "fail-then-kill";
const ENDINGS: readonly Ending[] = [
  "lose",
  "keep",
  "tear",
  "tear",
  "tear",
  "kill",
  "fail-then-crash",
  "fail-then-kill",
];

/** Runs a log over a disk whose process dies at a given operation, again and again, with a twin beside it. */
class History {
  readonly disk: MemoryDisk;
  readonly model: LogModel = new LogModel(at(0, 0));
  readonly #random: () => number;
  readonly #name: string;
  #budget = Number.POSITIVE_INFINITY;
  #ending: Ending = "lose";
  #ended: () => void = () => undefined;
  /** A fault was injected in this life; the log knows of it. */
  #failed = false;
  #fatal = false;
  #life = 0;

  constructor(seed: number) {
    this.#random = seededRandom(seed);
    this.#name = `seed ${seed}`;
    this.disk = new MemoryDisk({
      random: this.#random,
      onOperation: (_, complete) => {
        if (--this.#budget === 0) return this.#end(complete);
        // Operations on their way together complete in any order.
        this.#later(this.#integer(4), complete);
      },
    });
  }

  /** One life of the process: opens, checks against the twin, works until it dies or `steps` are over. */
  async live(budget: number, ending: Ending, steps: number): Promise<void> {
    this.#budget = budget;
    this.#ending = ending;
    this.#failed = false;
    this.#fatal = false;
    this.#life++;
    this.disk.fault = undefined;
    const ended = new Promise<"ended">((resolve) => {
      this.#ended = () => resolve("ended");
    });
    const opening = openOn(this.disk.mount(), {
      segmentBytesMax: SEGMENT_BYTES,
      onFatal: () => this.#onFatal(),
    });
    const opened = await Promise.race([opening.catch((error: unknown) => this.#refused(error)), ended]);
    if (opened === "ended") return;
    if (opened === "refused") return ended.then(() => undefined);
    this.model.recovered(opened.recovery, this.#name);
    await Promise.race([this.#work(opened.wal, steps), ended]);
    if (this.#budget > 0) this.#end(() => undefined);
    await ended;
  }

  async #work(wal: Wal, steps: number): Promise<void> {
    const life = this.#life;
    for (let step = 0; step < steps; step++) {
      if (this.#random() < 0.1) this.#release(wal);
      else this.#append(wal);
      if (this.#random() < 0.5) await settled();
      if (this.#life !== life || this.#budget <= 0) return;
    }
    await settled();
  }

  #append(wal: Wal): void {
    const write = this.#write();
    this.model.append(write);
    wal.append(write, () => {
      assert.ok(!this.#fatal, `${this.#name}: W7: done after a failure`);
      this.model.done();
    });
  }

  #release(wal: Wal): void {
    const { entries, hardState: state, snapshot } = this.model.durable;
    const index = Math.min(state?.commit ?? 0, snapshot.index + this.#integer(60));
    const released = entries.get(index);
    if (released === undefined || index <= this.model.released.index) return;
    this.model.released = at(index, released.term);
    wal.release(released.index, released.term);
  }

  #write(): WalWrite {
    const { hardState: state, last, snapshot, entries } = this.model.now;
    const commit = Math.max(state?.commit ?? 0, this.model.released.index, snapshot.index);
    let term = state?.term ?? 0;
    const roll = this.#random();
    if (roll < 0.15) {
      const vote = this.#integer(3);
      return { hardState: hardState(term + 1, vote, state?.commit ?? 0), entries: [] };
    }
    if (roll < 0.2) {
      const index = last.index + 1 + this.#integer(20);
      return { hardState: hardState(term, state?.vote ?? 0, index), snapshot: at(index, term), entries: [] };
    }
    // A leader of a newer term may replace what was not committed.
    let first = last.index + 1;
    if (roll < 0.35) {
      first = commit + 1 + this.#integer(last.index - commit + 1);
      term++;
    }
    const count = 1 + this.#integer(4);
    const added: Entry[] = [];
    for (let i = 0; i < count; i++) added.push(entry(first + i, term, this.#payload()));
    const kept = entries.get(first - 1)?.term ?? 0;
    assert.ok(kept <= term);
    if (term === state?.term && this.#random() < 0.5) return { entries: added };
    const newCommit = commit + this.#integer(first + count - commit);
    const vote = term === state?.term ? state.vote : 0;
    return { hardState: hardState(term, vote, newCommit), entries: added };
  }

  #payload(): Buffer {
    const roll = this.#random();
    const bytes = roll < 0.03 ? 5000 : roll < 0.2 ? this.#integer(1200) : this.#integer(60);
    // Zeros on purpose: whole sectors of them must not pass for sectors that were never written.
    return Buffer.alloc(bytes, this.#random() < 0.3 ? 0 : 1 + this.#integer(255));
  }

  #integer(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  #later(turns: number, complete: () => void): void {
    queueMicrotask(turns === 0 ? complete : () => this.#later(turns - 1, complete));
  }

  /** The operation at hand is the last one that the process asked for. */
  #end(complete: () => void): void {
    this.#budget = 0;
    if (this.#ending !== "fail-then-crash" && this.#ending !== "fail-then-kill") return this.#die();
    this.disk.fault = (operation) => diskFault("EIO", operation.path);
    this.#failed = true;
    complete();
    // Whoever goes on after the failure has its chance; then the process is gone.
    setImmediate(() => this.#die());
  }

  /** Opening fails only by an injected fault. */
  #refused(error: unknown): "refused" {
    if (this.#failed && error instanceof WalError && error.code === "disk-failed") return "refused";
    throw error;
  }

  #onFatal(): void {
    assert.ok(this.#failed && !this.#fatal, `${this.#name}: fatal once, and only after a fault`);
    this.#fatal = true;
  }

  #die(): void {
    const ending = this.#ending;
    if (ending === "kill" || ending === "fail-then-kill") this.disk.kill();
    else this.disk.crash(ending === "fail-then-crash" ? "tear" : ending);
    this.#ended();
  }

  ending(): Ending {
    return ENDINGS[this.#integer(ENDINGS.length)] ?? "tear";
  }

  integer(limit: number): number {
    return this.#integer(limit);
  }
}

describe("crashes of the log", () => {
  it("W5: after a crash at every single operation, what was done is there, and nothing but a prefix of what was appended", async () => {
    for (const mode of MODES) {
      for (let budget = 1; budget <= 160; budget++) {
        const history = new History(budget);
        await history.live(budget, mode, 60);
        await history.live(Number.POSITIVE_INFINITY, "lose", 5);
      }
    }
  });

  it("a crash at every operation of the recovery itself loses nothing", async () => {
    for (let budget = 1; budget <= 40; budget++) {
      for (const mode of MODES) {
        const history = new History(1000 + budget);
        await history.live(70 + budget, "tear", 80);
        await history.live(budget, mode, 0);
        await history.live(Number.POSITIVE_INFINITY, "lose", 5);
      }
    }
  });

  it("W7: after a failed write whose bytes stay readable, what the next start reports survives a power cut", async () => {
    for (let seed = 2000; seed < 2060; seed++) {
      const history = new History(seed);
      await history.live(20 + (seed % 60), seed % 2 === 0 ? "fail-then-kill" : "kill", 80);
      await history.live(Number.POSITIVE_INFINITY, "lose", 0);
      await history.live(Number.POSITIVE_INFINITY, "lose", 0);
    }
  });

  it("many lives with random endings keep every promise, and the log verifies offline", async () => {
    for (let seed = 1; seed <= 150; seed++) {
      const history = new History(seed);
      for (let life = 0; life < 6; life++) {
        await history.live(5 + history.integer(120), history.ending(), 60);
      }
      await history.live(Number.POSITIVE_INFINITY, "lose", 3);
      const report = await verifyWal(history.disk.mount(), DIRECTORY);
      assert.deepEqual(
        report.problems.filter(({ code }) => code !== "torn"),
        [],
        `seed ${seed}`,
      );
    }
  });
});
