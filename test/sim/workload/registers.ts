/** Registers that several clients read and write: every kind of read, compare-and-set and small transactions. */
import type { TxnResult } from "@lockstep/client";
import {
  valuesOf,
  type KeyCompare,
  type KeyInput,
  type KeyStep,
  type KeyTxn,
} from "../../linearizability/words.ts";
import { describeState, seen, type ReadBounds, type SeenState } from "../checkers/reads.ts";
import type { OpenOperation } from "../checkers/register-history.ts";
import type { ActorContext, CoverageKey, Dice } from "../contract.ts";
import { withConnections, type Connection } from "./connection.ts";
import { pause, type Tools } from "./tools.ts";
import { checkTxn, toClientTxn, toOutput, toTxnOutput } from "./transactions.ts";

const BURST_CHANCE = 0.2;
const BURST_MAX = 3;

export const REGISTER_PREFIX = "r/";

export function registerKey(index: number): string {
  return `${REGISTER_PREFIX}${String(index)}`;
}

/** The first two keys, and the others (three at most). */
function groupOf(key: string): boolean {
  return key === registerKey(1) || key === registerKey(2);
}

type Operation = (session: RegisterSession, key: string, slot: number) => Promise<void>;

/** Weights of the operations. */
const OPERATIONS: readonly (readonly [number, Operation])[] = [
  [22, (session, key, slot) => session.put(key, slot)],
  [22, (session, key, slot) => session.get(key, slot)],
  [8, (session, key) => session.getSerializable(key)],
  [6, (session, key) => session.getAtRevision(key)],
  [8, (session, key, slot) => session.compareAndSet(key, "value", slot)],
  [8, (session, key, slot) => session.compareAndSet(key, "mod-revision", slot)],
  [6, (session, key, slot) => session.compareAndSet(key, "version", slot)],
  [8, (session, key, slot) => session.remove(key, slot)],
  [12, (session, key, slot) => session.transact(key, slot)],
];
const WEIGHTS = OPERATIONS.reduce((sum, [weight]) => sum + weight, 0);

function drawOperation(dice: Dice): Operation {
  let left = dice.random() * WEIGHTS;
  for (const [weight, operation] of OPERATIONS) {
    left -= weight;
    if (left < 0) return operation;
  }
  return (session, key, slot) => session.get(key, slot);
}

export async function runRegisters(context: ActorContext, tools: Tools): Promise<void> {
  await withConnections(context, tools, async (connection) => {
    const session = new RegisterSession(connection);
    while (!connection.over) {
      const burst = context.dice.chance(BURST_CHANCE) ? context.dice.between(2, BURST_MAX) : 1;
      const operations: Promise<void>[] = [];
      for (let slot = 0; slot < burst; slot++) {
        const key = registerKey(context.dice.between(1, tools.plan.registerKeys));
        operations.push(drawOperation(context.dice)(session, key, slot));
      }
      await Promise.all(operations);
      await pause(context, tools.plan.operationsPerSecond);
    }
  });
}

/** One connection's work on the registers, and what it has seen of them. */
class RegisterSession {
  readonly #connection: Connection;
  readonly #tools: Tools;
  readonly #dice: Dice;
  readonly #known = new Map<string, SeenState | undefined>();
  readonly #deadlineMs: number;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#tools = connection.tools;
    this.#dice = connection.context.dice;
    this.#deadlineMs = connection.tools.plan.deadlineMs;
  }

  async put(key: string, slot: number): Promise<void> {
    const { writes, reads, reporter } = this.#tools;
    const value = this.#tools.uniqueValue();
    const what = `put ${key}=${value}`;
    const operation = this.#begin(slot, { kind: "put", key, value });
    writes.begin(value);
    const answer = await this.#connection.call({
      what,
      send: (client) => client.put(key, value, { deadlineMs: this.#deadlineMs, returnPrevious: true }),
      onDeath: () => writes.unknown(value),
    });
    if (!answer.ok) {
      if (answer.outcome === "unknown") writes.unknown(value);
      else writes.notApplied(value);
      operation.failed(answer.outcome);
      return;
    }
    reporter.count("puts");
    const { revision, createRevision, version, previous } = answer.value;
    reads.writtenRevision(revision, answer.bounds, what);
    writes.written(value, revision);
    const state = { key, value, createRevision, modRevision: revision, version, leaseId: "0" };
    reads.state(key, revision, state, what);
    reads.state(
      key,
      revision - 1,
      previous === undefined ? undefined : seen(previous),
      `${what}, before it,`,
    );
    this.#saw(key, state, revision);
    operation.ok(toOutput(answer.value));
  }

  async get(key: string, slot: number): Promise<void> {
    const { reads, reporter } = this.#tools;
    const what = `get ${key}`;
    const operation = this.#begin(slot, { kind: "get", key });
    const answer = await this.#connection.call({
      what,
      send: (client) => client.range(key, { deadlineMs: this.#deadlineMs }),
    });
    if (!answer.ok) {
      operation.failed("not-applied");
      return;
    }
    reporter.count("linearizable reads");
    const { revision, kvs } = answer.value;
    const state = kvs[0] === undefined ? undefined : seen(kvs[0]);
    reads.linearizableRevision(revision, answer.bounds, what);
    reads.state(key, revision, state, what);
    this.#saw(key, state, revision);
    operation.ok(toOutput(answer.value));
  }

  /** Possibly stale, but labelled with a revision that it must match, and not below the one that was asked for. */
  async getSerializable(key: string): Promise<void> {
    const { reads, reporter, truth } = this.#tools;
    const what = `serializable get ${key}`;
    const minRevision = this.#dice.chance(0.5) ? truth.revision - this.#dice.between(0, 5) : 0;
    const answer = await this.#connection.call({
      what,
      send: (client) =>
        client.range(key, {
          deadlineMs: this.#deadlineMs,
          consistency: "serializable",
          ...(minRevision > 0 ? { minRevision } : {}),
        }),
    });
    if (!answer.ok) return;
    reporter.count("serializable reads");
    const { revision, kvs } = answer.value;
    reads.committed(revision, what);
    if (revision < minRevision) {
      reporter.violation("I8-min", `${what} answers at ${revision}; at least ${minRevision} was asked for`);
    }
    reads.state(key, revision, kvs[0] === undefined ? undefined : seen(kvs[0]), what);
  }

  async getAtRevision(key: string): Promise<void> {
    const { reads, reporter, truth, compactions } = this.#tools;
    const newest = truth.revision;
    const oldest = Math.max(1, Math.min(compactions.highest, newest));
    // Now and then one that may be gone.
    const at = Math.max(1, this.#dice.between(oldest, newest) - (this.#dice.chance(0.1) ? 10 : 0));
    const what = `get ${key} at revision ${at}`;
    const answer = await this.#connection.call({
      what,
      send: (client) => client.range(key, { deadlineMs: this.#deadlineMs, revision: at }),
    });
    if (!answer.ok) {
      this.#judgeRefusedRevision(at, answer.error.code, what);
      return;
    }
    reporter.count("reads at a revision");
    reads.linearizableRevision(answer.value.revision, answer.bounds, what);
    const [kv] = answer.value.kvs;
    reads.state(key, at, kv === undefined ? undefined : seen(kv), what);
    this.#connection.noteRevision(answer.value.revision);
  }

  async remove(key: string, slot: number): Promise<void> {
    const { reads, reporter } = this.#tools;
    const what = `delete ${key}`;
    const operation = this.#begin(slot, { kind: "delete", key });
    const answer = await this.#connection.call({
      what,
      send: (client) => client.delete(key, { deadlineMs: this.#deadlineMs, returnPrevious: true }),
    });
    if (!answer.ok) {
      operation.failed(answer.outcome);
      return;
    }
    reporter.count("deletes");
    const { revision, deleted, previous } = answer.value;
    if (deleted > 0) reads.writtenRevision(revision, answer.bounds, what);
    else reads.linearizableRevision(revision, answer.bounds, what);
    reads.state(key, revision, undefined, what);
    const before = previous[0] === undefined ? undefined : seen(previous[0]);
    reads.state(key, deleted > 0 ? revision - 1 : revision, before, `${what}, before it,`);
    this.#saw(key, undefined, revision);
    operation.ok(toOutput(answer.value));
  }

  /** Writes if the key is as it was seen last; sometimes as it never was. */
  async compareAndSet(key: string, by: CompareBy, slot: number): Promise<void> {
    const known = this.#known.get(key);
    const value = this.#tools.uniqueValue();
    await this.#transaction(
      slot,
      {
        kind: "txn",
        compares: [compareWith(key, by, known)],
        success: [{ kind: "put", key, value }],
        failure: [{ kind: "get", key }],
      },
      "compare-and-sets",
    );
  }

  /**
   * Two or three keys, both branches with something to do. Keys that ever meet in a transaction are checked together, and
   * that search grows fast with them: so they meet in fixed groups.
   */
  async transact(first: string, slot: number): Promise<void> {
    const dice = this.#dice;
    const others: string[] = [];
    for (let index = 1; index <= this.#tools.plan.registerKeys; index++) {
      const key = registerKey(index);
      if (key !== first && groupOf(key) === groupOf(first)) others.push(key);
    }
    const keys = [first];
    while (keys.length < dice.between(2, 3) && others.length > 0) {
      keys.push(...others.splice(dice.between(0, others.length - 1), 1));
    }
    const compares = keys
      .filter(() => dice.chance(0.5))
      .map((key) => compareWith(key, dice.pick(["value", "mod-revision"] as const), this.#known.get(key)));
    const step = (key: string): KeyStep => {
      const kind = dice.pick(["put", "put", "get", "delete"] as const);
      return kind === "put" ? { kind, key, value: this.#tools.uniqueValue() } : { kind, key };
    };
    await this.#transaction(
      slot,
      {
        kind: "txn",
        compares,
        success: keys.map(step),
        failure: keys.filter(() => dice.chance(0.5)).map(step),
      },
      "transactions",
    );
  }

  async #transaction(slot: number, plan: KeyTxn, counted: CoverageKey): Promise<void> {
    const { writes, reporter } = this.#tools;
    const what = `transaction ${JSON.stringify(plan)}`;
    const operation = this.#begin(slot, plan);
    const values = valuesOf(plan);
    for (const value of values) writes.begin(value);
    const answer = await this.#connection.call({
      what,
      send: (client) => client.txn(toClientTxn(plan), { deadlineMs: this.#deadlineMs }),
      onDeath: () => {
        for (const value of values) writes.unknown(value);
      },
    });
    if (!answer.ok) {
      for (const value of values) {
        if (answer.outcome === "unknown") writes.unknown(value);
        else writes.notApplied(value);
      }
      operation.failed(answer.outcome);
      return;
    }
    reporter.count(counted);
    this.#judgeTxn(plan, answer.value, { what, bounds: answer.bounds });
    operation.ok(toTxnOutput(answer.value));
  }

  #judgeTxn(plan: KeyTxn, result: TxnResult, call: { what: string; bounds: ReadBounds }): void {
    const { writes } = this.#tools;
    const [taken, left] = result.succeeded ? [plan.success, plan.failure] : [plan.failure, plan.success];
    for (const value of putValues(left)) writes.skipped(value);
    for (const value of putValues(taken)) writes.written(value, result.revision);
    const shown = checkTxn(this.#tools, plan, result, call);
    for (const [key, state] of shown) this.#saw(key, state, result.revision);
    this.#connection.noteRevision(result.revision);
  }

  #judgeRefusedRevision(at: number, code: string, what: string): void {
    const { compactions, reporter } = this.#tools;
    if (code === "compacted" && at >= compactions.highest) {
      reporter.violation(
        "I8-compacted",
        `${what}: compacted; nobody asked for more than ${compactions.highest}`,
      );
    }
    if (code === "future-revision") {
      reporter.violation("I8-stale", `${what}: in the future, and it was committed before the question`);
    }
  }

  #begin(slot: number, input: KeyInput): OpenOperation {
    return this.#tools.history.begin(`${String(this.#connection.id)}.${String(slot)}`, input);
  }

  #saw(key: string, state: SeenState | undefined, revision: number): void {
    this.#known.set(key, state);
    this.#connection.noteRevision(revision);
    this.#tools.reporter.trace(this.#connection.host, () => `${revision}: ${key} is ${describeState(state)}`);
  }
}

type CompareBy = "value" | "mod-revision" | "version";

function compareWith(key: string, by: CompareBy, known: SeenState | undefined): KeyCompare {
  if (by === "value" && known !== undefined) return { key, target: by, operator: "=", operand: known.value };
  const operand = by === "version" ? (known?.version ?? 0) : (known?.modRevision ?? 0);
  return { key, target: by === "version" ? by : "mod-revision", operator: "=", operand };
}

function putValues(steps: readonly KeyStep[]): string[] {
  return steps.flatMap((step) => (step.kind === "put" ? [step.value] : []));
}
