// What no real server does on demand; the rest is in test/guards.
import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { describe, it } from "node:test";
import { PostgresGuard, STALE_TOKEN_SQLSTATE, type PostgresConnection } from "./postgres.ts";

/** A connection that answers from a list of errors by the first word of the statement. */
class Scripted extends EventEmitter implements PostgresConnection {
  readonly statements: string[] = [];
  readonly #errors: Readonly<Record<string, Error>>;

  constructor(errors: Readonly<Record<string, Error>> = {}) {
    super();
    this.#errors = errors;
  }

  query(text: string): Promise<{ readonly command?: string }> {
    const [command = ""] = text.split(" ");
    this.statements.push(command);
    const error = this.#errors[command];
    return error === undefined ? Promise.resolve({ command }) : Promise.reject(error);
  }
}

const serverError = (fields: object): Error => Object.assign(new Error("from the server"), fields);
const nothing = (): Promise<void> => Promise.resolve();

describe("a PostgreSQL guard", () => {
  it("says that the outcome is unknown when the connection broke during COMMIT", async () => {
    const guard = new PostgresGuard({ resource: "report" });
    const broken = [
      new Error("Connection terminated unexpectedly"),
      serverError({ code: "57P01", severity: "FATAL" }),
    ];
    for (const error of broken)
      await assert.rejects(guard.transaction(new Scripted({ COMMIT: error }), 7, nothing), {
        code: "guard-failed",
        outcome: "unknown",
        cause: error,
      });
    const refused = serverError({ code: "23505", severity: "ERROR" });
    await assert.rejects(
      guard.transaction(new Scripted({ COMMIT: refused }), 7, nothing),
      (error) => error === refused,
    );
  });

  it("knows a refusal whose detail was taken away or is not its own", async () => {
    const guard = new PostgresGuard({ resource: "report" });
    for (const detail of [undefined, "", "{", "null", '{"seen":"9"}']) {
      const error = serverError({ code: STALE_TOKEN_SQLSTATE, severity: "ERROR", detail });
      await assert.rejects(guard.seal(new Scripted({ SELECT: error }), 7), {
        name: "StaleTokenError",
        resource: "report",
        offered: 7,
        seen: undefined,
      });
    }
    assert.equal(guard.rejections, 5);
  });

  it("throws the work's error when the rollback fails too", async () => {
    const guard = new PostgresGuard({ resource: "report" });
    const boom = new Error("boom");
    const connection = new Scripted({ ROLLBACK: new Error("gone") });
    await assert.rejects(
      guard.transaction(connection, 7, () => Promise.reject(boom)),
      (error) => error === boom,
    );
  });

  it("survives the event of a connection that ends during the work, and listens no longer than that", async () => {
    const guard = new PostgresGuard({ resource: "report" });
    const connection = new Scripted();
    await guard.transaction(connection, 7, async () => {
      connection.emit("error", new Error("terminated"));
      await nothing();
    });
    assert.equal(connection.listenerCount("error"), 0);
    assert.deepEqual(connection.statements, ["BEGIN", "SELECT", "COMMIT"]);
  });

  it("takes no limit that is not a number of milliseconds", async () => {
    const guard = new PostgresGuard({ resource: "report" });
    for (const idleMsMax of [-1, 1.5, NaN]) {
      const connection = new Scripted();
      await assert.rejects(guard.transaction(connection, 7, nothing, { idleMsMax }), TypeError);
      assert.deepEqual(connection.statements, []);
    }
  });
});
