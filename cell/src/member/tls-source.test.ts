import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { TestAuthority } from "@lockstep/gateway/testing/certificates";
import type { TestCertificate } from "@lockstep/gateway/testing/certificates";
import { TLS_POLL_MS, TlsSource } from "./tls-source.ts";
import type { TlsSourceParts } from "./tls-source.ts";

const one = new TestAuthority("one");
const two = new TestAuthority("two");
const PATHS = { cert: "tls.crt", key: "tls.key", ca: "ca.crt" };

function leafOf(authority: TestAuthority, name = "m1"): TestCertificate {
  return authority.issue({ uris: [`lockstep://cell-1/member/${name}`] });
}

/** Three files in memory, a clock that stands, and looks that come when the test says so. */
class Desk {
  readonly files = new Map<string, string>();
  readonly lines: string[] = [];
  /** Called before a file is read, with its name. */
  onRead: (path: string) => void = () => undefined;
  #look: () => void = () => undefined;
  stopped = false;

  constructor(leaf: TestCertificate, bundle: string) {
    this.put(leaf, bundle);
  }

  put(leaf: TestCertificate, bundle: string): void {
    this.files.set("tls.crt", leaf.cert).set("tls.key", leaf.key).set("ca.crt", bundle);
  }

  open(): Promise<TlsSource> {
    const log = (message: string, fields: object = {}): void => {
      this.lines.push(`${message} ${JSON.stringify(fields)}`);
    };
    const parts: TlsSourceParts = {
      options: { ...PATHS, cellUid: "cell-1" },
      memberName: "m1",
      log: { debug: log, info: log, warn: log, error: log },
      wallMs: () => Date.now(),
      every: (intervalMs, task) => {
        assert.equal(intervalMs, TLS_POLL_MS);
        this.#look = task;
        return () => (this.stopped = true);
      },
      readFile: (path) => {
        this.onRead(path);
        const text = this.files.get(path);
        return text === undefined ? Promise.reject(new Error("ENOENT")) : Promise.resolve(Buffer.from(text));
      },
    };
    return TlsSource.open(parts);
  }

  /** One tick of the timer; resolves when it has looked. */
  async tick(source: TlsSource): Promise<void> {
    this.#look();
    // The look that is under way is joined, not begun anew.
    await source.reload();
  }
}

describe("certificates in files", () => {
  it("a member does not start with files that cannot be used, and says which", async () => {
    const desk = new Desk(leafOf(one), one.cert);
    desk.files.delete("tls.key");
    await assert.rejects(desk.open(), /cannot read tls\.key \(--tls-key\): ENOENT/);
    desk.put(leafOf(one, "m2"), one.cert);
    await assert.rejects(desk.open(), /is for member\/m2/);
    desk.put(leafOf(two), one.cert);
    await assert.rejects(desk.open(), /signed by no authority/);
  });

  it("new files are found by the timer, and told once", async () => {
    const desk = new Desk(leafOf(one), one.cert);
    const source = await desk.open();
    const told: string[] = [];
    const results: string[] = [];
    const first = source.current;
    source.listen(first, ({ leafHash }) => told.push(leafHash));
    source.onReload = (result) => results.push(result);
    await desk.tick(source);
    assert.deepEqual(told, []);
    const before = source.status();
    desk.put(leafOf(one), one.cert + two.cert);
    await desk.tick(source);
    await desk.tick(source);
    const now = source.status();
    assert.deepEqual(told, [now.leafHash]);
    assert.deepEqual(results, ["taken"]);
    const late: string[] = [];
    source.listen(first, ({ leafHash }) => late.push(leafHash));
    source.listen(source.current, () => assert.fail("it has these"));
    assert.deepEqual(late, told);
    assert.notEqual(now.leafHash, before.leafHash);
    assert.notEqual(now.bundleHash, before.bundleHash);
    assert.equal(now.reloadError, "");
    source.close();
    assert.ok(desk.stopped);
  });

  it("bad files are refused whole; the ones before go on; it is told in status and, once, in the log", async () => {
    const desk = new Desk(leafOf(one), one.cert);
    const source = await desk.open();
    const before = source.status();
    const results: string[] = [];
    source.onReload = (result) => results.push(result);
    source.listen(source.current, () => assert.fail("nothing was to be taken"));
    const good = leafOf(one);
    const bad: readonly (readonly [string, string, string, RegExp])[] = [
      ["tls.crt", "nothing", one.cert + two.cert, /holds no PEM certificate/],
      ["tls.key", leafOf(one).key, one.cert + two.cert, /the key does not fit/],
      ["tls.crt", leafOf(two).cert, one.cert + two.cert, /the key does not fit/],
      ["ca.crt", "", "", /CA bundle holds no PEM certificate/],
    ];
    for (const [file, text, bundle, reason] of bad) {
      desk.put(good, bundle);
      desk.files.set(file, text);
      await desk.tick(source);
      await desk.tick(source);
      const { reloadError, ...same } = source.status();
      assert.match(reloadError, reason);
      assert.deepEqual({ ...same, reloadError: "" }, before);
    }
    assert.equal(desk.lines.filter((line) => line.includes("refused the certificate files")).length, 4);
    assert.deepEqual(results, ["refused", "refused", "refused", "refused"]);
  });

  it("what was refused is taken as soon as it can be, and old files that come back clear the error", async () => {
    const leaf = leafOf(one);
    const desk = new Desk(leaf, one.cert);
    const source = await desk.open();
    desk.files.set("tls.crt", leafOf(one).cert);
    assert.equal(await source.reload(), "refused");
    desk.put(leaf, one.cert);
    assert.equal(await source.reload(), "same");
    assert.equal(source.status().reloadError, "");
    const half = leafOf(one);
    desk.files.set("tls.crt", half.cert);
    assert.equal(await source.reload(), "refused");
    desk.files.set("tls.key", half.key);
    assert.equal(await source.reload(), "taken");
    assert.equal(source.status().reloadError, "");
  });

  it("an authority is replaced in three phases; a leaf of the authority before passes with a new bundle", async () => {
    const desk = new Desk(leafOf(one), one.cert);
    const source = await desk.open();
    for (const [leaf, bundle] of [
      [leafOf(one), one.cert + two.cert],
      [leafOf(two), one.cert + two.cert],
      [leafOf(two), two.cert],
    ] as const) {
      desk.put(leaf, bundle);
      assert.equal(await source.reload(), "taken");
    }
    // Out of step: the bundle came before the leaf, which the bundle before still vouches for.
    desk.put(leafOf(two), one.cert);
    assert.equal(await source.reload(), "taken");
    desk.put(leafOf(two), one.cert + one.cert);
    assert.equal(await source.reload(), "refused");
  });

  it("a mount that is swapped while it is read is read again", async () => {
    const desk = new Desk(leafOf(one), one.cert);
    const source = await desk.open();
    const next = leafOf(one);
    let reads = 0;
    desk.onRead = () => {
      reads += 1;
      if (reads === 2) desk.put(next, one.cert);
    };
    assert.equal(await source.reload(), "taken");
    assert.equal(source.current.cert.toString(), next.cert);
    assert.ok(!desk.lines.some((line) => line.includes("refused")));
  });

  it("real files are read with a bound", async () => {
    const directory = mkdtempSync(join(tmpdir(), "lockstep-tls-"));
    try {
      const path = (name: string): string => join(directory, name);
      const { cert, key } = leafOf(one);
      writeFileSync(path("tls.crt"), cert);
      writeFileSync(path("tls.key"), key);
      writeFileSync(path("ca.crt"), Buffer.alloc(2 * 1024 * 1024, "#"));
      const quiet = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
      const open = (): Promise<TlsSource> =>
        TlsSource.open({
          options: { cert: path("tls.crt"), key: path("tls.key"), ca: path("ca.crt"), cellUid: "cell-1" },
          memberName: "m1",
          log: quiet,
          wallMs: () => Date.now(),
          every: () => () => undefined,
        });
      await assert.rejects(open(), /ca\.crt \(--tls-ca\): larger than/);
      writeFileSync(path("ca.crt"), one.cert);
      (await open()).close();
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});
