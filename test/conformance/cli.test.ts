// The `lockstep` command as operators use it: a child process against a live cell of three real members.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { closeSync, openSync, readSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { createInterface } from "node:readline";
import type { MemberProcess } from "../support/cell.ts";
import { TestCell } from "../support/cell.ts";
import { freePortBlock } from "../support/ports.ts";
import { run } from "../support/run.ts";
import type { Ran } from "../support/run.ts";
import { until } from "../support/until.ts";
import { Writers, assertAllThere } from "../support/writers.ts";

const LOCKSTEP = new URL("../../cli/bin/lockstep.mjs", import.meta.url).pathname;

type Json = Readonly<Record<string, unknown>>;

interface Listed {
  readonly leaderId: number;
  readonly joint: boolean;
  readonly members: readonly { readonly id: number; readonly name: string; readonly kind: string }[];
}

/** A cell and the command that is told of its addresses once, in the environment. */
class Shell {
  readonly cell: TestCell;

  constructor(cell: TestCell) {
    this.cell = cell;
  }

  get env(): NodeJS.ProcessEnv {
    const admin = this.cell.running.map((member) => member.address(3));
    return {
      ...process.env,
      LOCKSTEP_ENDPOINTS: this.cell.running.map((member) => member.address(0)).join(","),
      LOCKSTEP_ADMIN_ENDPOINTS: admin.join(","),
    };
  }

  run(args: readonly string[], input?: string): Promise<Ran> {
    const options = { env: this.env, cwd: this.cell.directory };
    return run(process.execPath, [LOCKSTEP, ...args], input === undefined ? options : { ...options, input });
  }

  /** Runs a command that must succeed. */
  async text(...args: string[]): Promise<string> {
    const { code, out, err } = await this.run(args);
    assert.equal(code, 0, `lockstep ${args.join(" ")}: ${err}`);
    return out;
  }

  async json<T = Json>(...args: string[]): Promise<T> {
    return JSON.parse(await this.text(...args, "-o", "json")) as T;
  }

  members(): Promise<Listed> {
    return this.json<Listed>("member", "list");
  }
}

const namesOf = (list: Listed, kind: string): string[] =>
  list.members.flatMap((member) => (member.kind === kind ? [member.name] : [])).sort();

describe("lockstep, the command", { timeout: 120_000 }, () => {
  let shell: Shell;
  before(async () => {
    shell = new Shell(await TestCell.start(3));
  });
  after(() => shell.cell.stop());

  it("put, get and del agree on versions, and a missing key has an exit code of its own", async () => {
    const first = await shell.json("put", "/cli/a", "one");
    assert.deepEqual([first["created"], first["version"]], [true, 1]);
    assert.equal(first["fencingToken"], first["revision"]);
    const fromInput = await shell.run(["put", "/cli/a"], "two\n");
    assert.equal(fromInput.code, 0, fromInput.err);
    assert.equal(await shell.text("get", "/cli/a", "--raw"), "two\n");
    assert.equal(await shell.text("get", "/cli/a", "--raw", "--revision", String(first["revision"])), "one");
    const range = await shell.json<{ readonly count: number; readonly items: Json[] }>(
      "get",
      "/cli/",
      "--prefix",
    );
    assert.equal(range.count, 1);
    assert.equal(range.items[0]?.["version"], 2);
    assert.equal((await shell.json("del", "/cli/a"))["deleted"], 1);
    const missing = await shell.run(["get", "/cli/a"]);
    assert.equal(missing.code, 3);
    assert.match(missing.err, /no key/);
    assert.equal((await shell.run(["del", "/cli/a"])).code, 3);
    assert.equal((await shell.run(["get"])).code, 2);
  });

  it("txn ends with 0 for the success branch and 6 for the failure branch", async () => {
    const txn = JSON.stringify({
      compares: [{ key: "/cli/txn", version: 0 }],
      success: [{ put: { key: "/cli/txn", value: "me" } }],
      failure: [{ get: { key: "/cli/txn" } }],
    });
    const won = await shell.run(["txn", "-o", "json"], txn);
    assert.equal(won.code, 0, won.err);
    assert.equal((JSON.parse(won.out) as Json)["succeeded"], true);
    const lost = await shell.run(["txn", "-o", "json"], txn);
    assert.equal(lost.code, 6);
    const { results } = JSON.parse(lost.out) as { results: { get: { items: Json[] } }[] };
    assert.equal(results[0]?.get.items[0]?.["value"], "me");
    assert.equal((await shell.run(["txn"], "{")).code, 2);
  });

  it("watch prints past and coming changes in order, one JSON object a line", async () => {
    const past = await shell.json("put", "/cli/watch", "past");
    const watching = shell.run([
      ...["watch", "/cli/watch", "--revision", String(past["revision"]), "--count", "3", "-o", "json"],
    ]);
    await shell.text("put", "/cli/watch", "now");
    await shell.text("del", "/cli/watch");
    const { code, out, err } = await watching;
    assert.equal(code, 0, err);
    const events = out
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Json);
    assert.deepEqual(
      events.map((event) => [event["type"], event["value"]]),
      [
        ["put", "past"],
        ["put", "now"],
        ["delete", undefined],
      ],
    );
    const revisions = events.map((event) => Number(event["modRevision"]));
    assert.equal(revisions[0], past["revision"]);
    assert.deepEqual(
      revisions.toSorted((a, b) => a - b),
      revisions,
    );
  });

  it("a lease is granted, shown, kept alive and revoked, and takes its keys along", async () => {
    const id = (await shell.text("lease", "grant", "30s", "--owner", "worker-17")).trim();
    assert.match(id, /^lease_\d+$/);
    await shell.text("put", "/cli/leased", "x", "--lease", id);
    const shown = await shell.json("lease", "show", id);
    assert.deepEqual([shown["owner"], shown["keys"]], ["worker-17", ["/cli/leased"]]);
    assert.ok(Number((await shell.json("lease", "keepalive", id, "--once"))["remainingMs"]) > 0);
    assert.equal((await shell.json("lease", "revoke", id))["deleted"], 1);
    assert.equal((await shell.run(["get", "/cli/leased"])).code, 3);
    assert.equal((await shell.run(["lease", "show", id])).code, 3);
  });

  it("lock hands its command a token that grows from owner to owner, and passes its exit code on", async () => {
    const script = 'printf "%s %s" "$LOCKSTEP_FENCING_TOKEN" "$LOCKSTEP_LOCK_NAME"; exit 42';
    const tokens: string[] = [];
    for (let n = 0; n < 2; n += 1) {
      const { code, out, err } = await shell.run(["lock", "nightly", "--", "sh", "-c", script]);
      assert.equal(code, 42, err);
      const [token = "", name] = out.split(" ");
      assert.match(token, /^\d{16}$/);
      assert.equal(name, "nightly");
      tokens.push(token);
    }
    assert.ok((tokens[0] ?? "") < (tokens[1] ?? ""), tokens.join(" < "));
  });

  it("a held lock is refused to a second owner within its --wait, with the code for that", async () => {
    const holder = spawn(process.execPath, [LOCKSTEP, "lock", "held", "--", "sh", "-c", "echo held; cat"], {
      stdio: ["pipe", "pipe", "inherit"],
      env: shell.env,
    });
    const exited = new Promise<number | null>((resolve) => holder.once("exit", resolve));
    for await (const line of createInterface({ input: holder.stdout })) if (line === "held") break;
    assert.equal((await shell.run(["lock", "held", "--wait", "300ms", "--", "true"])).code, 124);
    holder.stdin.end();
    assert.equal(await exited, 0);
    assert.equal(await shell.text("lock", "held", "--wait", "5s", "--", "echo", "free"), "free\n");
  });

  it("status and member list show every member, for people and for programs", async () => {
    const { members } = await shell.json<{ readonly members: readonly Json[] }>("status");
    assert.deepEqual(members.map((member) => member["name"]).sort(), ["m1", "m2", "m3"]);
    assert.equal(members.filter((member) => member["role"] === "leader").length, 1);
    assert.ok(members.every((member) => member["ready"] === true));
    const list = await shell.members();
    assert.deepEqual(namesOf(list, "voter"), ["m1", "m2", "m3"]);
    const leader = list.members.find((member) => member.id === list.leaderId)?.name ?? "?";
    assert.match(await shell.text("member", "list"), new RegExp(`${leader} +voter +yes `));
  });
});

/** Changes one byte of a file in place. */
function flipByte(file: string, offset: number): void {
  const handle = openSync(file, "r+");
  try {
    const byte = Buffer.alloc(1);
    readSync(handle, byte, 0, 1, offset);
    writeSync(handle, Buffer.of((byte[0] ?? 0) ^ 0x40), 0, 1, offset);
  } finally {
    closeSync(handle);
  }
}

describe("lockstep operates a cell under write load", { timeout: 120_000 }, () => {
  let shell: Shell;
  let writers: Writers;
  let fourth: ReturnType<typeof spawn> | undefined;
  let old: MemberProcess;
  let base = 0;
  before(async () => {
    const cell = await TestCell.start(3);
    shell = new Shell(cell);
    writers = await Writers.start(cell.endpoints, 8);
    await writers.progress(100);
  });
  after(async () => {
    writers.abandon();
    if (fourth !== undefined && fourth.exitCode === null) {
      const exited = new Promise((resolve) => fourth?.once("exit", resolve));
      fourth.kill("SIGTERM");
      await exited;
    }
    await shell.cell.stop();
  });

  it("serve --join makes a fresh folder a learner of the cell", async () => {
    base = await freePortBlock(5);
    const ports = ["client", "http", "peer", "admin", "ops"].flatMap((port, offset) => [
      `--${port}`,
      `127.0.0.1:${String(base + offset)}`,
    ]);
    const folder = join(shell.cell.directory, "m4");
    fourth = spawn(
      process.execPath,
      [LOCKSTEP, "serve", "--data", folder, "--name", "m4", ...shell.cell.joinFlags(), ...ports],
      { stdio: "ignore", env: shell.env },
    );
    const list = await until("m4 is a learner", async () => {
      const listed = await shell.members();
      return listed.members.some((member) => member.name === "m4") ? listed : undefined;
    });
    assert.deepEqual(namesOf(list, "learner"), ["m4"]);
    assert.deepEqual(namesOf(list, "voter"), ["m1", "m2", "m3"]);
  });

  it("member replace exchanges the leader for the new member, and no acknowledged write is lost", async () => {
    old = await shell.cell.leader();
    await shell.text("member", "replace", old.name, "m4");
    assert.equal(await old.exited(), 3, "a removed member ends with the code for that");
    const list = await shell.members();
    assert.equal(list.joint, false);
    const left = ["m1", "m2", "m3", "m4"].filter((name) => name !== old.name);
    assert.deepEqual(namesOf(list, "voter"), left);
    assert.deepEqual(namesOf(list, "learner"), []);
    await writers.progress(100);
    assert.equal((await shell.run(["member", "replace", old.name, "m4"])).code, 3, "it is gone already");
  });

  it("leader transfer moves leadership to the member that was named, under load", async () => {
    const moved = await shell.json("leader", "transfer", "m4");
    assert.equal(moved["name"], "m4");
    const list = await shell.members();
    assert.equal(list.members.find((member) => member.id === list.leaderId)?.name, "m4");
    await writers.progress(100);
    const back = shell.cell.running[0]?.name ?? "";
    assert.equal((await shell.json("leader", "transfer", back))["name"], back);
    await writers.progress(100);
  });

  it("snapshot saves the whole state to a file while writes go on", async () => {
    const file = join(shell.cell.directory, "state.snapshot");
    const saved = await shell.json("snapshot", file);
    assert.ok(Number(saved["bytes"]) > 0);
    assert.equal(statSync(file).size, saved["bytes"]);
    assert.throws(() => statSync(`${file}.partial`));
    await writers.progress(50);
  });

  it("after all that every acknowledged write is there and the members agree on one digest", async (t) => {
    const acknowledged = await writers.stop();
    t.diagnostic(
      `${String(writers.acknowledgedCount)} writes, longest gap ${writers.longestGapMs.toFixed(0)} ms`,
    );
    const fourthClient = `127.0.0.1:${String(base)}`;
    await assertAllThere(
      [...shell.cell.running.map((member) => member.address(0)), fourthClient],
      acknowledged,
    );
    // From the new member alone, which has it all from a stream and the log.
    await assertAllThere([fourthClient], acknowledged);
    const digests = await until("three members at one applied index", async () => {
      const { members } = await shell.json<{ readonly members: readonly Json[] }>("status");
      const indexes = new Set(members.map((member) => member["appliedIndex"]));
      return members.length === 3 && indexes.size === 1
        ? members.map((member) => String(member["digest"]))
        : undefined;
    });
    assert.equal(new Set(digests).size, 1, digests.join(" "));
  });

  it("verify finds a stopped member's folder sound, and one flipped byte in its log, with its place", async () => {
    const stopped = shell.cell.running[0];
    assert.ok(stopped !== undefined);
    assert.equal(await stopped.kill("SIGTERM"), 0);
    assert.match(await shell.text("verify", stopped.directory), /^sound:/m);
    const records = (await shell.text("dump", stopped.directory))
      .split("\n")
      .flatMap((line) => (line.includes('"log"') ? [JSON.parse(line) as Json] : []));
    const middle = records[Math.floor(records.length / 2)];
    assert.ok(middle !== undefined && records.length > 100, String(records.length));
    const segment = String(middle["segment"]);
    const offset = Number(middle["offset"]);
    flipByte(join(stopped.directory, "wal", segment), offset + Math.floor(Number(middle["bytes"]) / 2));
    const damaged = await shell.run(["verify", stopped.directory]);
    assert.equal(damaged.code, 1, damaged.out);
    const found = new RegExp(`${segment.replace(".", "\\.")} at (\\d+)`).exec(damaged.out);
    assert.ok(found !== null, damaged.out);
    // Batches are checked whole: the place is the start of the batch that holds the byte.
    assert.ok(Number(found[1]) <= offset, damaged.out);
    assert.match(damaged.out, /NOT sound/);
  });
});
