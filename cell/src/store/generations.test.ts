import assert from "node:assert/strict";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { crc32 } from "node:zlib";
import { decodeCurrent, encodeCurrent } from "./current-file.ts";
import { nodeGenerationFiles, type GenerationFiles } from "./generation-files.ts";
import { openGenerations, type Generations } from "./generations.ts";
import { openMemoryGenerations } from "./memory-generations.ts";
import { openRocksStore } from "./rocks-store.ts";
import type { Store } from "./types.ts";

const openStore = (directory: string): Promise<Store> =>
  openRocksStore(directory, { now: () => performance.now() });
const ROW = Buffer.from("row");

function put(store: Store, value: string): void {
  store.write((batch) => batch.put("meta", ROW, Buffer.from(value)));
}

function row(generations: Generations): string | undefined {
  const value = generations.current.get("meta", ROW);
  return value === undefined ? undefined : Buffer.from(value).toString();
}

class Crash extends Error {}

/** Throws before or after the step number `at`, and counts steps. */
class CrashingFiles {
  steps = 0;
  readonly #at: number;
  readonly #when: "before" | "after";

  constructor(at: number, when: "before" | "after") {
    this.#at = at;
    this.#when = when;
  }

  files(): GenerationFiles {
    const real = nodeGenerationFiles;
    return {
      ...real,
      makeDirectory: (path) => this.#step(() => real.makeDirectory(path)),
      writeDurably: (path, text) => this.#step(() => real.writeDurably(path, text)),
      rename: (from, to) => this.#step(() => real.rename(from, to)),
      syncDirectory: (path) => this.#step(() => real.syncDirectory(path)),
      removeTree: (path) => this.#step(() => real.removeTree(path)),
    };
  }

  async #step(run: () => Promise<void>): Promise<void> {
    this.steps += 1;
    if (this.steps > this.#at || (this.steps === this.#at && this.#when === "before"))
      throw new Crash("power cut");
    await run();
    if (this.steps === this.#at) throw new Crash("power cut");
  }
}

describe("generations", () => {
  let root: string;
  let directory: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "lockstep-generations-"));
    directory = join(root, "store");
  });
  afterEach(async () => {
    await rm(root, { recursive: true, force: true });
  });

  it("an empty folder gets generation 1, which is there at the next open", async () => {
    const first = await openGenerations(directory, { openStore });
    assert.equal(first.number, 1);
    assert.equal(first.note.length, 0);
    put(first.current, "one");
    await first.close();
    const again = await openGenerations(directory, { openStore });
    assert.equal(again.number, 1);
    assert.equal(row(again), "one");
    await again.close();
  });

  it("a commit swaps the store, keeps the note, and removes the old generation", async () => {
    const generations = await openGenerations(directory, { openStore });
    put(generations.current, "old");
    const old = generations.current;
    const pending = await generations.begin();
    assert.equal(pending.store.get("meta", ROW), undefined);
    put(pending.store, "new");
    assert.equal(row(generations), "old");
    assert.equal(await pending.commit(Buffer.from([1, 2, 255])), generations.current);
    assert.equal(row(generations), "new");
    assert.throws(() => old.get("meta", ROW), { code: "closed" });
    await generations.close();
    assert.deepEqual((await readdir(directory)).sort(), ["CURRENT", "gen-000002"]);
    const again = await openGenerations(directory, { openStore });
    assert.equal(row(again), "new");
    assert.deepEqual([...again.note], [1, 2, 255]);
    await again.close();
  });

  it("an abort leaves the old store live and nothing behind; the next one may begin", async () => {
    const generations = await openGenerations(directory, { openStore });
    put(generations.current, "old");
    const pending = await generations.begin();
    await assert.rejects(generations.begin(), /one generation is pending/);
    put(pending.store, "new");
    await pending.abort();
    await pending.abort();
    assert.deepEqual((await readdir(directory)).sort(), ["CURRENT", "gen-000001"]);
    const second = await generations.begin();
    assert.equal(second.store.get("meta", ROW), undefined);
    await generations.close();
    assert.deepEqual((await readdir(directory)).sort(), ["CURRENT", "gen-000001"]);
  });

  it("a crash before or after any step of a commit leaves the old state or the new one, never neither (W14)", async () => {
    const start = await openGenerations(directory, { openStore });
    put(start.current, "old");
    await start.close();
    const outcomes = new Set<string>();
    let finished = false;
    for (let at = 1; !finished; at += 1) {
      assert.ok(at < 40, "the swap has a bounded number of steps");
      for (const when of ["before", "after"] as const) {
        const copy = join(root, `${when}${at}`);
        await cp(directory, copy, { recursive: true });
        const crashing = new CrashingFiles(at, when);
        const opened: Store[] = [];
        const remember = async (path: string): Promise<Store> => {
          const store = await openStore(path);
          opened.push(store);
          return store;
        };
        try {
          const generations = await openGenerations(copy, { openStore: remember, files: crashing.files() });
          const pending = await generations.begin();
          put(pending.store, "new");
          await pending.commit(Buffer.from("note"));
          finished = crashing.steps < at;
        } catch (error) {
          const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
          assert.ok(cause instanceof Crash, String(error));
        }
        for (const store of opened) await store.close();
        const after = await openGenerations(copy, { openStore });
        outcomes.add(`${row(after)} ${after.number} ${Buffer.from(after.note).toString()}`);
        await after.close();
        const names = (await readdir(copy)).sort();
        assert.deepEqual(names, ["CURRENT", `gen-00000${after.number}`], `${when} step ${at}`);
        await rm(copy, { recursive: true });
      }
    }
    assert.deepEqual([...outcomes].sort(), ["new 2 note", "old 1 "]);
  });

  it("order of durability: folder name, new store, CURRENT.tmp, rename, its sync; only then the old one goes", async () => {
    const steps: string[] = [];
    const log = <T>(step: string, run: () => Promise<T>): Promise<T> => {
      steps.push(step);
      return run();
    };
    const real = nodeGenerationFiles;
    const files: GenerationFiles = {
      ...real,
      makeDirectory: (path) => log(`mkdir ${relative(root, path)}`, () => real.makeDirectory(path)),
      writeDurably: (path, text) => log(`write ${relative(root, path)}`, () => real.writeDurably(path, text)),
      rename: (from, to) => log(`rename ${relative(root, to)}`, () => real.rename(from, to)),
      syncDirectory: (path) => log(`sync ${relative(root, path)}`, () => real.syncDirectory(path)),
      removeTree: (path) => log(`remove ${relative(root, path)}`, () => real.removeTree(path)),
    };
    const logged = async (path: string): Promise<Store> => {
      const store = await openStore(path);
      const barrier = store.barrier.bind(store);
      store.barrier = () => log(`barrier ${relative(root, path)}`, barrier);
      return store;
    };
    const generations = await openGenerations(directory, { openStore: logged, files });
    const pending = await generations.begin();
    steps.length = 0;
    await pending.commit();
    assert.deepEqual(steps, [
      "barrier store/gen-000002",
      "write store/CURRENT.tmp",
      "rename store/CURRENT",
      "sync store",
      "remove store/gen-000001",
      "sync store",
    ]);
    await generations.close();
  });

  it("a failed swap is final; a failure before it can be aborted", async () => {
    let broken: "writeDurably" | "rename" | undefined;
    const files: GenerationFiles = {
      ...nodeGenerationFiles,
      writeDurably: (path, text) =>
        broken === "writeDurably"
          ? Promise.reject(new Crash())
          : nodeGenerationFiles.writeDurably(path, text),
      rename: (from, to) =>
        broken === "rename" ? Promise.reject(new Crash()) : nodeGenerationFiles.rename(from, to),
    };
    const generations = await openGenerations(directory, { openStore, files });
    put(generations.current, "old");
    const first = await generations.begin();
    broken = "writeDurably";
    await assert.rejects(first.commit(), Crash);
    assert.equal(row(generations), "old");
    await first.abort();
    const second = await generations.begin();
    broken = "rename";
    await assert.rejects(second.commit(), { code: "failed" });
    await assert.rejects(second.abort(), /not aborted/);
    await generations.close();
    assert.deepEqual((await readdir(directory)).sort(), [
      "CURRENT",
      "CURRENT.tmp",
      "gen-000001",
      "gen-000002",
    ]);
  });

  it("a first open that crashed before CURRENT starts again", async () => {
    await mkdir(directory);
    await (await openStore(join(directory, "gen-000001"))).close();
    const generations = await openGenerations(directory, { openStore });
    assert.equal(generations.number, 1);
    await generations.close();
  });

  it("a lost CURRENT never costs rows: the folder is refused", async () => {
    const generations = await openGenerations(directory, { openStore });
    put(generations.current, "precious");
    await generations.close();
    const text = await readFile(join(directory, "CURRENT"), "utf8");
    await rm(join(directory, "CURRENT"));
    await assert.rejects(openGenerations(directory, { openStore }), { code: "generation-invalid" });
    await mkdir(join(directory, "gen-000007"));
    await assert.rejects(openGenerations(directory, { openStore }), { code: "generation-invalid" });
    await writeFile(join(directory, "CURRENT"), text);
    const again = await openGenerations(directory, { openStore });
    assert.equal(row(again), "precious");
    await again.close();
  });

  it("a CURRENT that is damaged or names a missing folder is refused", async () => {
    await (await openGenerations(directory, { openStore })).close();
    const path = join(directory, "CURRENT");
    await writeFile(path, encodeCurrent({ number: 9, note: Buffer.alloc(0) }));
    await assert.rejects(openGenerations(directory, { openStore }), { code: "generation-invalid" });
    const good = encodeCurrent({ number: 1, note: Buffer.from("abc") });
    for (let at = 0; at < good.length; at += 1) {
      const bad = `${good.slice(0, at)}${good[at] === "5" ? "6" : "5"}${good.slice(at + 1)}`;
      assert.throws(() => decodeCurrent(bad), { code: "generation-invalid" });
      assert.throws(() => decodeCurrent(good.slice(0, at)), { code: "generation-invalid" });
    }
    assert.deepEqual(decodeCurrent(good), { number: 1, note: Buffer.from("abc") });
    for (const folder of ["gen-000000", "gen-0000001"]) {
      const body = good.slice(0, good.lastIndexOf("crc32")).replace("gen-000001", folder);
      const foreign = `${body}crc32 ${crc32(body).toString(16).padStart(8, "0")}\n`;
      assert.throws(() => decodeCurrent(foreign), { code: "generation-invalid" }, folder);
    }
  });
});

describe("generations in memory", () => {
  it("commit, abort and begin behave like the real ones", async () => {
    const generations = openMemoryGenerations();
    put(generations.current, "old");
    const aborted = await generations.begin();
    put(aborted.store, "never");
    await aborted.abort();
    const pending = await generations.begin();
    put(pending.store, "new");
    await pending.commit(Buffer.from("n"));
    assert.equal(row(generations), "new");
    assert.equal(generations.number, 2);
    assert.equal(Buffer.from(generations.note).toString(), "n");
    generations.crash(() => 0);
    assert.equal(row(generations), "new");
  });

  for (const [random, expected] of [
    [0, "new"],
    [0.9, "old"],
  ] as const) {
    it(`a crash between rename and its sync leaves the ${expected} state (random ${random})`, async () => {
      const syncs: (() => void)[] = [];
      let held = false;
      const generations = openMemoryGenerations({
        sync: () => (held ? new Promise((resolve) => syncs.push(resolve)) : Promise.resolve()),
      });
      put(generations.current, "old");
      await generations.current.barrier();
      const pending = await generations.begin();
      put(pending.store, "new");
      held = true;
      const commit = pending.commit();
      syncs.shift()!();
      while (syncs.length === 0) await Promise.resolve();
      generations.crash(() => random);
      syncs.shift()!();
      await assert.rejects(commit, { code: "closed" });
      assert.equal(row(generations), expected);
      put(generations.current, "usable");
    });
  }
});
