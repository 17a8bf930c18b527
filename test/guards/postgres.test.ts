// What the guard does in a real PostgreSQL, one situation at a time.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import pg from "pg";
import {
  dropTriggerSql,
  GUARD_SQL_VERSION,
  GuardError,
  installSql,
  PostgresGuard,
  StaleTokenError,
  STALE_TOKEN_SQLSTATE,
  triggerSql,
  uninstallSql,
} from "@lockstep/client/guards/postgres";
import { PostgresServer } from "./support/postgres-server.ts";

const found = await PostgresServer.find();
const TOKEN_MAX = Number.MAX_SAFE_INTEGER;

describe("a PostgreSQL guard", "missing" in found ? { skip: found.missing } : {}, () => {
  let server: PostgresServer;
  let client: pg.Client;
  let other: pg.Client;

  before(async () => {
    assert("path" in found);
    server = await PostgresServer.start(found.path);
    client = await server.connect();
    other = await server.connect();
    await client.query(installSql());
  });
  after(() => server.stop());

  const marks = async (resource: string): Promise<unknown> => {
    const { rows } = await client.query<Record<string, string>>(
      "SELECT exclusive, shared FROM lockstep_marks WHERE resource = $1",
      [resource],
    );
    return rows[0] === undefined ? undefined : [Number(rows[0]["exclusive"]), Number(rows[0]["shared"])];
  };

  it("refuses a smaller token with its own SQLSTATE, in plain SQL", async () => {
    await client.query("SELECT lockstep_guard('plain', 7)");
    await client.query("SELECT lockstep_guard('plain', 7)");
    await assert.rejects(client.query("SELECT lockstep_guard('plain', 5)"), {
      code: STALE_TOKEN_SQLSTATE,
      detail: '{"resource" : "plain", "offered" : 5, "seen" : 7}',
    });
    assert.deepEqual(await marks("plain"), [7, 0]);
  });

  it("maps the refusal to a StaleTokenError, rolls the work back, and counts where the rollback cannot reach", async () => {
    await client.query("CREATE TABLE work (id int PRIMARY KEY)");
    const guard = new PostgresGuard({ resource: "work" });
    await guard.transaction(client, 7, () => client.query("INSERT INTO work VALUES (1)"));
    let ran = false;
    const stale = guard.transaction(client, 5, async () => {
      ran = true;
      await client.query("INSERT INTO work VALUES (2)");
    });
    await assert.rejects(stale, (error) => {
      assert(error instanceof StaleTokenError);
      assert.deepEqual([error.resource, error.offered, error.seen], ["work", 5, 7]);
      return true;
    });
    assert.equal(ran, false);
    assert.equal(guard.rejections, 1);
    const { rowCount } = await client.query("SELECT FROM work");
    assert.equal(rowCount, 1);
  });

  it("rolls mark and work back together when the work throws", async () => {
    const guard = new PostgresGuard({ resource: "throws" });
    const boom = new Error("boom");
    await assert.rejects(
      guard.transaction(client, 7, () => Promise.reject(boom)),
      (error) => error === boom,
    );
    assert.equal(await marks("throws"), undefined);
    await guard.transaction(client, 5, () => Promise.resolve());
  });

  it("compares the largest tokens exactly and takes nothing that is not a token", async () => {
    const guard = new PostgresGuard({ resource: "large" });
    await guard.seal(client, TOKEN_MAX);
    await assert.rejects(guard.seal(client, TOKEN_MAX - 1), { seen: TOKEN_MAX });
    for (const token of [0, -1, 1.5, TOKEN_MAX + 1])
      await assert.rejects(
        guard.transaction(client, token, () => Promise.resolve()),
        TypeError,
      );
    for (const token of ["0", "9007199254740992", "NULL"])
      await assert.rejects(client.query(`SELECT lockstep_guard('large', ${token})`), { code: "22023" });
  });

  it("keeps the pair of marks of a read-write lock", async () => {
    const exclusive = new PostgresGuard({ resource: "pair" });
    const shared = new PostgresGuard({ resource: "pair", mode: "shared" });
    await exclusive.seal(client, 3);
    await shared.seal(client, 9);
    await shared.seal(client, 5);
    assert.deepEqual(await marks("pair"), [3, 9]);
    await assert.rejects(exclusive.seal(client, 8), { seen: 9 });
    await exclusive.seal(client, 10);
    await assert.rejects(shared.seal(client, 9), { seen: 10 });
    await shared.seal(client, 11);
    assert.deepEqual([exclusive.rejections, shared.rejections], [1, 1]);
  });

  it("keeps the slots of a semaphore apart", async () => {
    const [zero, one] = [0, 1].map((slot) => new PostgresGuard({ resource: "pool", slot }));
    await zero?.seal(client, 9);
    await one?.seal(client, 4);
    await assert.rejects(async () => zero?.seal(client, 8), { resource: "pool#0" });
  });

  it("does not wait for ever behind a paused owner's transaction: the server ends it", async () => {
    const guard = new PostgresGuard({ resource: "paused" });
    const paused = await server.connect();
    const { promise: resume, resolve } = Promise.withResolvers<undefined>();
    const admitted = Promise.withResolvers<undefined>();
    const work = async (): Promise<void> => {
      admitted.resolve(undefined);
      await resume;
      await paused.query("SELECT 1");
    };
    const early = guard.transaction(paused, 5, work, { idleMsMax: 100 });
    await admitted.promise;
    await guard.transaction(client, 7, () => Promise.resolve());
    resolve(undefined);
    await assert.rejects(early);
    assert.deepEqual(await marks("paused"), [7, 0]);
  });

  it("gives up behind a long transaction after lockWaitMsMax, with nothing done", async () => {
    const guard = new PostgresGuard({ resource: "long" });
    await other.query("BEGIN");
    await guard.admit(other, 5);
    const options = { lockWaitMsMax: 50 };
    await assert.rejects(
      guard.transaction(client, 7, () => Promise.resolve(), options),
      { code: "guard-contended", outcome: "not-applied" },
    );
    await other.query("COMMIT");
    assert.deepEqual(await marks("long"), [5, 0]);
  });

  it("tells when a swallowed error made the COMMIT a rollback", async () => {
    const guard = new PostgresGuard({ resource: "swallowed" });
    const work = async (): Promise<void> => {
      await client.query("SELECT 1/0").catch(() => undefined);
    };
    await assert.rejects(guard.transaction(client, 7, work), {
      code: "guard-failed",
      outcome: "not-applied",
    });
    assert.equal(await marks("swallowed"), undefined);
  });

  it("refuses a pool where one connection is needed, and seals with it", async () => {
    const pool = new pg.Pool(server.config);
    const guard = new PostgresGuard({ resource: "pooled" });
    await assert.rejects(
      guard.transaction(pool, 5, () => Promise.resolve()),
      TypeError,
    );
    await assert.rejects(guard.admit(pool, 5), TypeError);
    await guard.seal(pool, 5);
    const one = await pool.connect();
    await guard.transaction(one, 6, (connection) => connection.query("SELECT 1"));
    one.release();
    await pool.end();
    assert.deepEqual(await marks("pooled"), [6, 0]);
  });

  describe("as a trigger", () => {
    it("checks rows against themselves when it has no resource", async () => {
      await client.query("CREATE TABLE rows (id int PRIMARY KEY, token bigint)");
      await client.query(triggerSql({ table: "rows", column: "token" }));
      await client.query("INSERT INTO rows VALUES (1, 7), (2, 5)");
      await client.query("UPDATE rows SET token = 6 WHERE id = 2");
      await assert.rejects(client.query("UPDATE rows SET token = 6 WHERE id = 1"), {
        code: STALE_TOKEN_SQLSTATE,
      });
      await assert.rejects(client.query("INSERT INTO rows VALUES (3, NULL)"), { code: "22004" });
    });

    it("checks every row against the resource when it has one, and takes tokens as text", async () => {
      await client.query('CREATE TABLE "Odd ""name" (id int PRIMARY KEY, "the token" text)');
      const on = { table: 'Odd "name', column: "the token", resource: "it's" };
      for (let twice = 0; twice < 2; twice += 1) await client.query(triggerSql(on));
      await client.query(`INSERT INTO "Odd ""name" VALUES (1, '0000000000000007')`);
      const guard = new PostgresGuard({ resource: "it's" });
      const stale = guard.transaction(client, 7, async () => {
        await client.query(`INSERT INTO "Odd ""name" VALUES (2, '0000000000000005')`);
      });
      await assert.rejects(stale, { name: "StaleTokenError", resource: "it's", offered: 5, seen: 7 });
      assert.equal(guard.rejections, 1);
      await client.query(dropTriggerSql(on));
      await client.query(dropTriggerSql(on));
      await client.query(`INSERT INTO "Odd ""name" VALUES (2, '5')`);
    });

    it("advances the mark once for a statement with many rows", async () => {
      await client.query("CREATE TABLE many (id int PRIMARY KEY, token bigint)");
      await client.query(triggerSql({ table: "many", column: "token", resource: "many" }));
      await client.query("BEGIN");
      await client.query("INSERT INTO many SELECT n, 7 FROM generate_series(1, 2000) AS n");
      const versions = "SELECT ctid FROM lockstep_marks WHERE resource = 'many'";
      const before = await client.query<{ ctid: string }>(versions);
      await client.query("UPDATE many SET token = 7");
      const after = await client.query<{ ctid: string }>(versions);
      await client.query("COMMIT");
      assert.equal(after.rows[0]?.ctid, before.rows[0]?.ctid);
      await assert.rejects(client.query("UPDATE many SET token = 6 WHERE id = 5"), {
        code: STALE_TOKEN_SQLSTATE,
      });
    });

    it("admits again after a savepoint took the admission back", async () => {
      const guard = new PostgresGuard({ resource: "savepoint" });
      await client.query("BEGIN; SAVEPOINT early");
      await guard.admit(client, 7);
      await client.query("ROLLBACK TO early");
      await guard.admit(client, 7);
      await client.query("COMMIT");
      assert.deepEqual(await marks("savepoint"), [7, 0]);
    });
  });

  describe("installed", () => {
    it("by several at once, and again, keeps its marks", async () => {
      await client.query("CREATE SCHEMA fresh");
      const options = { schema: "fresh" };
      const several = await server.connectMany(4);
      await Promise.all(several.map((one) => one.query(installSql(options))));
      const guard = new PostgresGuard({ resource: "kept", ...options });
      await guard.seal(client, 7);
      await client.query(installSql(options));
      await assert.rejects(guard.seal(client, 5), StaleTokenError);
      const { rows } = await client.query("SELECT fresh.lockstep_guard_version() AS version");
      assert.deepEqual(rows, [{ version: GUARD_SQL_VERSION }]);
    });

    it("over an older version replaces it and keeps the marks; over a newer one fails", async () => {
      await client.query("CREATE SCHEMA versions");
      const options = { schema: "versions" };
      const setVersion = async (version: number): Promise<void> => {
        const text = `CREATE OR REPLACE FUNCTION versions.lockstep_guard_version() RETURNS integer LANGUAGE sql AS 'SELECT ${String(version)}'`;
        await client.query(text);
      };
      await client.query(installSql(options));
      const guard = new PostgresGuard({ resource: "kept", ...options });
      await guard.seal(client, 7);
      await setVersion(0);
      await client.query(installSql(options));
      await assert.rejects(guard.seal(client, 5), StaleTokenError);
      await setVersion(GUARD_SQL_VERSION + 1);
      await assert.rejects(client.query(installSql(options)), /newer/);
    });

    it("gives another role the functions only when granted, and never the marks", async () => {
      await client.query("CREATE ROLE worker LOGIN");
      const worker = await server.connect({ user: "worker" });
      const guard = new PostgresGuard({ resource: "granted" });
      await assert.rejects(guard.seal(worker, 5), { code: "42501" });
      await client.query("GRANT EXECUTE ON FUNCTION lockstep_guard(text, bigint) TO worker");
      await guard.seal(worker, 5);
      await assert.rejects(worker.query("UPDATE lockstep_marks SET exclusive = 0"), { code: "42501" });
      await assert.rejects(worker.query("SELECT lockstep_refuse('x', 1, 2)"), { code: "42501" });
    });

    it("is removed with its marks, but not from under a trigger; without it the guard says what to do", async () => {
      await client.query("CREATE SCHEMA gone");
      const options = { schema: "gone" };
      await client.query(installSql(options));
      await client.query("CREATE TABLE guarded_by_gone (token bigint)");
      await client.query(triggerSql({ table: "guarded_by_gone", column: "token", ...options }));
      await assert.rejects(client.query(uninstallSql(options)), { code: "2BP01" });
      await client.query(dropTriggerSql({ table: "guarded_by_gone" }));
      await client.query(uninstallSql(options));
      await client.query(uninstallSql(options));
      const guard = new PostgresGuard({ resource: "gone", ...options });
      await assert.rejects(
        guard.transaction(client, 5, () => Promise.resolve()),
        (error) => {
          assert(error instanceof GuardError);
          assert.equal(error.code, "guard-unsupported");
          return true;
        },
      );
    });

    it("into a schema whose name needs no quoting", () => {
      for (const schema of ["", 'a"b', "a b", "a$install$"])
        assert.throws(() => installSql({ schema }), TypeError);
    });
  });
});
