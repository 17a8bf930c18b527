// What the guard does in a real Redis, one situation at a time, and under races.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import type { RedisClientType } from "redis";
import {
  FUNCTION_NAME,
  GuardError,
  loadFunctions,
  RedisGuard,
  StaleTokenError,
} from "@lockstep/client/guards/redis";
import { freePortBlock } from "../support/ports.ts";
import { until } from "../support/until.ts";
import { assertGuarded, decreases, race, raceSeed } from "./support/race.ts";
import { RedisServer } from "./support/redis-server.ts";

const found = await RedisServer.find();
const TOKEN_MAX = Number.MAX_SAFE_INTEGER;
const SLOTS_LAST = 16_383;
const WRITERS = 12;
const WRITES_EACH = 100;

describe("a Redis guard", "missing" in found ? { skip: found.missing } : {}, () => {
  let server: RedisServer;
  let client: RedisClientType;

  before(async () => {
    assert("path" in found);
    server = await RedisServer.start(found.path);
    client = await server.connect();
  });
  after(() => server.stop());
  beforeEach(async () => {
    await client.sendCommand(["FLUSHALL"]);
  });

  for (const functions of [false, true])
    describe(functions ? "as a stored function" : "as a script", () => {
      beforeEach(async () => {
        if (functions) await loadFunctions(client);
      });
      const guardOf = (resource: string): RedisGuard => new RedisGuard(client, { resource, functions });

      it("writes and deletes for the owner, and refuses whoever was the owner", async () => {
        const guard = guardOf("report");
        await guard.set(7, "key", "seven");
        await assert.rejects(guard.set(5, "key", "five"), (error) => {
          assert(error instanceof StaleTokenError);
          assert.deepEqual([error.resource, error.offered, error.seen], ["report", 5, 7]);
          return true;
        });
        await assert.rejects(guard.del(5, ["key"]), StaleTokenError);
        assert.equal(await client.get("key"), "seven");
        assert.equal(await guard.del(7, ["key", "none"]), 1);
        assert.equal(await client.get("key"), null);
        assert.equal(guard.rejections, 2);
      });

      it("is sealed by the new owner before it wrote anything", async () => {
        const guard = guardOf("report");
        await guard.set(5, "key", "five");
        await guard.seal(7);
        await assert.rejects(guard.set(5, "key", "late"), StaleTokenError);
        assert.equal(await client.get("key"), "five");
      });

      it("runs several commands as one, and none of them for a stale token", async () => {
        const guard = guardOf("report");
        const commands = [
          ["SET", "count", "1"],
          ["INCR", "count"],
          ["GET", "count"],
          ["GET", "none"],
          ["HSET", "hash", "a", "1", "b", "2"],
        ];
        assert.deepEqual(await guard.run(7, commands, ["count", "none", "hash"]), ["OK", 2, "2", null, 2]);
        await assert.rejects(
          guard.run(5, [
            ["DEL", "count"],
            ["DEL", "hash"],
          ]),
          StaleTokenError,
        );
        assert.equal(await client.get("count"), "2");
      });

      it("names the command that failed; those before it stay", async () => {
        const guard = guardOf("report");
        const commands = [
          ["SET", "text", "not a number"],
          ["INCR", "text"],
          ["SET", "after", "1"],
        ];
        await assert.rejects(guard.run(7, commands), (error) => {
          assert(error instanceof GuardError);
          assert.equal(error.code, "guard-failed");
          assert.equal(error.outcome, "unknown");
          assert.match(error.message, /command 2 of 3/);
          return true;
        });
        assert.deepEqual(await client.mGet(["text", "after"]), ["not a number", null]);
      });

      it("keeps the pair of marks of a read-write lock, and the slots of a semaphore apart", async () => {
        const shared = new RedisGuard(client, { resource: "pair", mode: "shared", functions });
        const exclusive = guardOf("pair");
        await exclusive.seal(3);
        await shared.seal(9);
        await shared.seal(5);
        await assert.rejects(exclusive.seal(8), { seen: 9 });
        await exclusive.seal(10);
        await assert.rejects(shared.seal(9), { seen: 10 });
        const [zero, one] = [0, 1].map(
          (slot) => new RedisGuard(client, { resource: "pool", slot, functions }),
        );
        await zero?.seal(9);
        await one?.seal(4);
        await assert.rejects(async () => zero?.seal(8), { resource: "pool#0" });
      });

      it("compares the largest tokens exactly, whatever digits the mark is stored as", async () => {
        const guard = new RedisGuard(client, { resource: "large", marksKey: "marks", functions });
        await guard.seal(TOKEN_MAX);
        assert.deepEqual({ ...(await client.hGetAll("marks")) }, { exclusive: String(TOKEN_MAX) });
        await assert.rejects(guard.seal(TOKEN_MAX - 1), { seen: TOKEN_MAX });
        await client.hSet("marks", "exclusive", "9");
        await guard.seal(10);
        assert.equal(await client.hGet("marks", "exclusive"), "0000000000000010");
        await assert.rejects(guard.seal(9), { seen: 10 });
      });

      it("writes nothing when the mark is not a token", async () => {
        const guard = new RedisGuard(client, { resource: "broken", marksKey: "marks", functions });
        for (const mark of ["", "0x10", "1e3", "-1", "9007199254740992", "seven"]) {
          await client.hSet("marks", "exclusive", mark);
          await assert.rejects(guard.set(7, "key", "value"), {
            code: "guard-failed",
            outcome: "not-applied",
          });
        }
        await client.set("marks", "a string");
        await assert.rejects(guard.set(7, "key", "value"), /WRONGTYPE/);
        assert.equal(await client.get("key"), null);
      });

      it("takes any bytes for keys and values, and a time to live", async () => {
        const guard = guardOf("bytes");
        const bytes = Buffer.from([0, 255, 10, 13, 128]);
        await guard.set(7, bytes, bytes, { pxMs: 60_000 });
        assert.equal(await client.strLen(bytes), bytes.length);
        assert((await client.pTTL(bytes)) > 0);
      });

      it("takes nothing that is not a token", async () => {
        const guard = guardOf("report");
        for (const token of [0, -1, 1.5, TOKEN_MAX + 1]) await assert.rejects(guard.seal(token), TypeError);
        await assert.rejects(guard.run(1, [[]]), TypeError);
        assert.throws(() => new RedisGuard(client, { resource: "" }), TypeError);
      });

      it("accepted tokens never decrease, in the order of the server", async (t) => {
        const connections = await server.connectMany(WRITERS);
        const guards = connections.map((one) => new RedisGuard(one, { resource: "race", functions }));
        const seed = raceSeed("redis.test.ts", (line) => t.diagnostic(line));
        const result = await race({
          seed,
          writers: WRITERS,
          writesEach: WRITES_EACH,
          write: async (writer, token) => {
            const commands = [
              ["SET", "latest", String(token)],
              ["RPUSH", "journal", String(token)],
            ];
            try {
              await guards[writer]?.run(token, commands, ["latest", "journal"]);
              return true;
            } catch (error) {
              if (error instanceof StaleTokenError) return false;
              throw error;
            }
          },
        });
        const tokens = (await client.lRange("journal", 0, -1)).map(Number);
        assertGuarded(result, tokens);
        assert.equal(Number(await client.get("latest")), tokens.at(-1));
        assert.equal(
          guards.reduce((sum, { rejections }) => sum + rejections, 0),
          result.refused,
        );
      });
    });

  it("the same race without the guard shows decreases, so the test bites", async (t) => {
    const connections = await server.connectMany(WRITERS);
    await race({
      seed: raceSeed("redis.test.ts", (line) => t.diagnostic(line)),
      writers: WRITERS,
      writesEach: WRITES_EACH,
      write: async (writer, token) => {
        await connections[writer]?.rPush("journal", String(token));
        return true;
      },
    });
    assert(decreases((await client.lRange("journal", 0, -1)).map(Number)) > 0);
  });

  it("the same race with a check in the client shows decreases, so the single step is what makes it safe", async (t) => {
    const connections = await server.connectMany(WRITERS);
    await race({
      seed: raceSeed("redis.test.ts", (line) => t.diagnostic(line)),
      writers: WRITERS,
      writesEach: WRITES_EACH,
      write: async (writer, token) => {
        const connection = connections[writer];
        assert(connection !== undefined);
        if (Number(await connection.get("mark")) > token) return false;
        await connection.multi().set("mark", String(token)).rPush("journal", String(token)).exec();
        return true;
      },
    });
    assert(decreases((await client.lRange("journal", 0, -1)).map(Number)) > 0);
  });

  it("sends the script again to a server that has not seen it", async () => {
    const guard = new RedisGuard(client, { resource: "report" });
    await client.scriptFlush();
    await guard.set(7, "key", "seven");
    await client.scriptFlush();
    await assert.rejects(guard.set(5, "key", "five"), StaleTokenError);
    assert.equal(await client.get("key"), "seven");
  });

  it("says what to do when the function is not stored", async () => {
    await client.sendCommand(["FUNCTION", "FLUSH"]);
    const guard = new RedisGuard(client, { resource: "report", functions: true });
    await assert.rejects(guard.seal(7), { code: "guard-unsupported", outcome: "not-applied" });
    await loadFunctions(client);
    await loadFunctions(client);
    await guard.seal(7);
    const library = await client.sendCommand(["FUNCTION", "LIST", "LIBRARYNAME", FUNCTION_NAME]);
    assert.equal(Array.isArray(library) && library.length, 1);
  });

  it("a replica that takes over without the last writes lets the earlier owner in: what Redis cannot promise", async () => {
    assert("path" in found);
    const base = await freePortBlock(2);
    const ports = [String(base), String(base + 1)] as const;
    const primary = await RedisServer.start(found.path, [
      "--port",
      ports[0],
      "--repl-diskless-sync-delay",
      "0",
    ]);
    const replica = await RedisServer.start(found.path, [
      "--port",
      ports[1],
      "--replicaof",
      "127.0.0.1",
      ports[0],
    ]);
    try {
      const [first, second] = await Promise.all([primary.connect(), replica.connect()]);
      const earlier = new RedisGuard(first, { resource: "report" });
      await earlier.set(5, "key", "five");
      await until(
        "the replica has the earlier owner's write",
        async () => (await second.get("key")) ?? undefined,
      );
      await second.sendCommand(["REPLICAOF", "NO", "ONE"]);
      await earlier.set(7, "key", "seven");
      const elsewhere = new RedisGuard(second, { resource: "report" });
      await assert.rejects(elsewhere.set(4, "key", "four"), StaleTokenError, "mark and work came together");
      await elsewhere.set(5, "key", "stale");
      assert.equal(await second.get("key"), "stale");
    } finally {
      await Promise.all([primary.stop(), replica.stop()]);
    }
  });

  it("keeps its marks in the slot of keys with the resource as their hash tag", async () => {
    assert("path" in found);
    const cluster = await RedisServer.start(found.path, ["--cluster-enabled", "yes"]);
    try {
      const member = await cluster.connect();
      await member.sendCommand(["CLUSTER", "ADDSLOTSRANGE", "0", String(SLOTS_LAST)]);
      const guard = new RedisGuard(member, { resource: "report" });
      const slotted = new RedisGuard(member, { resource: "report", slot: 3 });
      await member.sendCommand(["CLUSTER", "SET-CONFIG-EPOCH", "1"]);
      await readyCluster(member);
      await guard.set(7, "{report}:a", "seven");
      await slotted.set(7, "{report}:b", "seven");
      await assert.rejects(guard.set(8, "elsewhere", "eight"), /CROSSSLOT/);
      await assert.rejects(guard.set(5, "{report}:a", "five"), StaleTokenError);
    } finally {
      await cluster.stop();
    }
  });
});

/** A cluster of one serves a moment after its slots were given out. */
async function readyCluster(member: RedisClientType): Promise<void> {
  await until("the cluster serves", async () => {
    const info = await member.sendCommand(["CLUSTER", "INFO"]);
    return JSON.stringify(info).includes("cluster_state:ok") || undefined;
  });
}
