// Who may commit after whom: a real PostgreSQL says in its own log in which order it committed.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, it } from "node:test";
import type pg from "pg";
import { installSql, PostgresGuard, StaleTokenError } from "@lockstep/client/guards/postgres";
import type { TransactionOptions } from "@lockstep/client/guards/postgres";
import { until } from "../support/until.ts";
import type { Dice } from "../torture/dice.ts";
import { CommitOrder, PostgresServer } from "./support/postgres-server.ts";
import { assertGuarded, decreases, race, raceSeed } from "./support/race.ts";

const FILE = "postgres-races.test.ts";
const WRITERS = 10;
const WRITES_EACH = 40;
const ISOLATIONS = ["read committed", "repeatable read", "serializable"] as const;
type Isolation = (typeof ISOLATIONS)[number];

const found = await PostgresServer.find();

describe("a PostgreSQL guard under races", "missing" in found ? { skip: found.missing } : {}, () => {
  let server: PostgresServer;
  let admin: pg.Client;
  let clients: pg.Client[];
  let tables = 0;

  before(async () => {
    assert("path" in found);
    server = await PostgresServer.start(found.path);
    admin = await server.connect();
    await admin.query(installSql());
    clients = await server.connectMany(WRITERS);
  });
  after(() => server.stop());
  afterEach(async () => {
    await Promise.allSettled(clients.map((client) => client.query("ROLLBACK")));
  });

  /** A journal, and the order of commits to it from here on. */
  async function journal(): Promise<{ table: string; order: () => Promise<number[]> }> {
    const table = `journal${String((tables += 1))}`;
    await admin.query(`CREATE TABLE ${table} (token bigint NOT NULL)`);
    const commits = await CommitOrder.watch(admin, `slot${String(tables)}`);
    return { table, order: () => commits.tokens(table) };
  }

  const clientOf = (writer: number): pg.Client => {
    const client = clients[writer];
    assert(client !== undefined);
    return client;
  };
  const pause = async (client: pg.Client, dice: Dice): Promise<void> => {
    await client.query("SELECT pg_sleep($1)", [dice.random() * 0.002]);
  };
  const isBlocked = async (client: pg.Client & { processID?: number }): Promise<true> =>
    until("the later transaction waits for the earlier one", async () => {
      const { rowCount } = await admin.query(
        "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'",
        [client.processID],
      );
      return rowCount === 1 || undefined;
    });

  for (const isolation of ISOLATIONS)
    it(`tokens never decrease in the order of commits: ${isolation}`, async (t) => {
      const { table, order } = await journal();
      const guards = clients.map(() => new PostgresGuard({ resource: table }));
      const seed = raceSeed(FILE, (line) => t.diagnostic(line));
      const result = await race({
        seed,
        writers: WRITERS,
        // Above READ COMMITTED waiting means beginning again, with pauses in between.
        writesEach: isolation === "read committed" ? WRITES_EACH : WRITES_EACH / 2,
        write: async (writer, token, dice) => {
          const client = clientOf(writer);
          const guard = guards[writer];
          assert(guard !== undefined);
          const work = async (): Promise<void> => {
            await pause(client, dice);
            await client.query(`INSERT INTO ${table} VALUES ($1)`, [token]);
            await pause(client, dice);
          };
          for (;;) {
            try {
              await guard.transaction(client, token, work, { isolation });
              return true;
            } catch (error) {
              if (error instanceof StaleTokenError) return false;
              if (!isSerializationFailure(error)) throw error;
            }
          }
        },
      });
      assertGuarded(result, await order());
      assert.equal(
        guards.reduce((sum, { rejections }) => sum + rejections, 0),
        result.refused,
      );
    });

  it("the same race without the guard shows decreases, so the test bites", async (t) => {
    const { table, order } = await journal();
    const result = await race({
      seed: raceSeed(FILE, (line) => t.diagnostic(line)),
      writers: WRITERS,
      writesEach: WRITES_EACH,
      write: async (writer, token, dice) => {
        const client = clientOf(writer);
        await pause(client, dice);
        await client.query(`INSERT INTO ${table} VALUES ($1)`, [token]);
        return true;
      },
    });
    const tokens = await order();
    assert.equal(tokens.length, result.accepted);
    assert(decreases(tokens) > 0);
  });

  it("the same race with a check that holds no lock shows decreases, so the lock is what makes it safe", async (t) => {
    const { table, order } = await journal();
    await admin.query(`CREATE TABLE ${table}_mark AS SELECT 0::bigint AS token`);
    await race({
      seed: raceSeed(FILE, (line) => t.diagnostic(line)),
      writers: WRITERS,
      writesEach: WRITES_EACH,
      write: async (writer, token, dice) => {
        const client = clientOf(writer);
        await client.query("BEGIN");
        const { rows } = await client.query<{ token: string }>(`SELECT token FROM ${table}_mark`);
        if (Number(rows[0]?.token) > token) {
          await client.query("ROLLBACK");
          return false;
        }
        await pause(client, dice);
        await client.query(`INSERT INTO ${table} VALUES ($1)`, [token]);
        await client.query(`UPDATE ${table}_mark SET token = greatest(token, $1)`, [token]);
        await client.query("COMMIT");
        return true;
      },
    });
    assert(decreases(await order()) > 0);
  });

  for (const isolation of ISOLATIONS)
    it(`a transaction that was admitted first and commits late goes before the next owner's: ${isolation}`, async () => {
      const { table, order } = await journal();
      const [earlier, later] = [clientOf(0), clientOf(1)];
      const guard = new PostgresGuard({ resource: table });
      await begin(earlier, isolation);
      await guard.admit(earlier, 5);
      await earlier.query(`INSERT INTO ${table} VALUES (5)`);
      const options: TransactionOptions = { isolation };
      const next = guard.transaction(
        later,
        7,
        async () => {
          const { rows } = await later.query<{ count: string }>(`SELECT count(*) FROM ${table}`);
          await later.query(`INSERT INTO ${table} VALUES (7)`);
          return rows[0]?.count;
        },
        options,
      );
      await isBlocked(later);
      await earlier.query("COMMIT");
      assert.equal(await next, "1", "what the earlier owner committed is seen by the next one's work");
      await begin(earlier, isolation);
      await assert.rejects(guard.admit(earlier, 5), StaleTokenError);
      await earlier.query("ROLLBACK");
      assert.deepEqual(await order(), [5, 7]);
    });

  for (const isolation of ["repeatable read", "serializable"] as const)
    it(`a snapshot from before the earlier owner's last commit is not worked on: ${isolation}`, async () => {
      const { table } = await journal();
      const [earlier, later] = [clientOf(0), clientOf(1)];
      const guard = new PostgresGuard({ resource: table });
      await guard.seal(earlier, 5);
      await begin(later, isolation);
      await later.query(`SELECT count(*) FROM ${table}`);
      await guard.transaction(earlier, 5, async () => {
        await earlier.query(`INSERT INTO ${table} VALUES (5)`);
      });
      await assert.rejects(guard.admit(later, 7), { code: "40001" });
      await later.query("ROLLBACK");
      await begin(later, isolation);
      await guard.admit(later, 7);
      await later.query("COMMIT");
    });

  it("a snapshot from before the next owner's seal does not let the earlier one in", async () => {
    const { table } = await journal();
    const [earlier, later] = [clientOf(0), clientOf(1)];
    const guard = new PostgresGuard({ resource: table });
    await guard.seal(earlier, 5);
    for (const isolation of ["repeatable read", "serializable"] as const) {
      await begin(earlier, isolation);
      await earlier.query(`SELECT count(*) FROM ${table}`);
      await guard.seal(later, 7);
      await assert.rejects(guard.admit(earlier, 5), (error: Error) => {
        assert(error instanceof StaleTokenError || isSerializationFailure(error));
        return true;
      });
      await earlier.query("ROLLBACK");
    }
    await assert.rejects(guard.seal(earlier, 5), StaleTokenError);
  });

  it("two first owners of a new name: the one that waits is compared with the one that came first", async () => {
    const [earlier, later] = [clientOf(0), clientOf(1)];
    const guard = new PostgresGuard({ resource: "new name" });
    await begin(earlier, "read committed");
    await guard.admit(earlier, 7);
    const refused = assert.rejects(guard.seal(later, 5), { name: "StaleTokenError", seen: 7 });
    await isBlocked(later);
    await earlier.query("COMMIT");
    await refused;
  });

  it("a seal that waited is made again where the connection's own isolation makes waiting a failure", async () => {
    const earlier = clientOf(0);
    const later = await server.connect({ options: "-c default_transaction_isolation=serializable" });
    const guard = new PostgresGuard({ resource: "sealed" });
    await guard.seal(earlier, 4);
    await begin(earlier, "read committed");
    await guard.admit(earlier, 5);
    const sealed = guard.seal(later, 7);
    await isBlocked(later);
    await earlier.query("COMMIT");
    await sealed;
    await assert.rejects(guard.seal(earlier, 5), { seen: 7 });
  });

  it("a token that was rolled back was not seen", async () => {
    const [earlier, later] = [clientOf(0), clientOf(1)];
    const guard = new PostgresGuard({ resource: "rolled back" });
    await guard.seal(earlier, 5);
    await begin(later, "read committed");
    await guard.admit(later, 7);
    await later.query("ROLLBACK");
    await guard.seal(earlier, 5);
  });
});

async function begin(client: pg.Client, isolation: Isolation): Promise<void> {
  await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
}

/** What every user of the higher levels has to repeat. */
function isSerializationFailure(error: unknown): boolean {
  return error instanceof Error && Reflect.get(error, "code") === "40001";
}
