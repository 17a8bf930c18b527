/**
 * The machine's deliberately dumb twin beside the true history's machine, over the beginning of each history: it looks
 * at everything that ever happened for each question, so its work grows with the square of the changes. It covers what
 * its own property test covers; at the first command beyond that (request ids of the HTTP door, refusals of malformed
 * operations, other namespaces) it ends, since nothing after it could be compared.
 */
import { decodeCommandBatch, DEFAULT_SETTINGS } from "../../../cell/src/machine/index.ts";
import { Model } from "../../../cell/src/machine/testing/model.ts";
import type {
  Command,
  CommandOutcome,
  MachineSettings,
  RevisionEvents,
} from "../../../cell/src/machine/types.ts";

/** Refusals that the twin comes to by itself. */
const COVERED_REFUSALS: ReadonlySet<string> = new Set([
  "lease-not-found",
  "lease-exists",
  "too-many-keys",
  "future-revision",
  "compacted",
  "duplicate-key",
  "request-expired",
]);
const NAMESPACE_ID = 1;
const FIRST_EPOCH = 1;

/** One entry, and what the machine made of it. */
export interface TwinStep {
  readonly index: number;
  readonly term: number;
  readonly data: Uint8Array;
  readonly outcomes: readonly CommandOutcome[];
  readonly events: readonly RevisionEvents[];
  readonly revision: number;
}

export class Twin {
  readonly #model: Model;
  readonly #changesMax: number;
  #ended: boolean;

  /** @param changesMax it ends after so many changes of keys */
  constructor(changesMax: number, settings: MachineSettings = DEFAULT_SETTINGS) {
    this.#model = new Model(settings);
    this.#changesMax = changesMax;
    this.#ended = changesMax === 0;
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** @returns in what the machine differs; undefined: in nothing, or the twin has ended */
  apply(step: TwinStep): string | undefined {
    if (this.#ended || step.data.length === 0) return undefined;
    const { commands } = decodeCommandBatch(step.data);
    const before = this.#model.changes.length;
    for (const [position, command] of commands.entries()) {
      const outcome = step.outcomes[position];
      if (outcome === undefined) return `command ${String(position)} has no outcome`;
      if (!isCovered(command, outcome)) {
        this.#ended = true;
        return undefined;
      }
      const expected = plain(comparable(this.#model.apply(command, step.term)));
      const actual = plain(comparable(outcome));
      if (expected !== actual) {
        return `command ${String(position)} (${describe(command)}): ${actual}, its twin says ${expected}`;
      }
    }
    const difference = this.#compareEvents(before, step);
    if (this.#model.changes.length >= this.#changesMax) this.#ended = true;
    return difference;
  }

  #compareEvents(before: number, step: TwinStep): string | undefined {
    const { changes, revision } = this.#model;
    const expected = changes
      .slice(before)
      .map(({ revision: at, key, kv, cause }) => [at, key, kv === undefined ? "delete" : "put", cause]);
    const actual = step.events.flatMap(({ revision: at, events }) =>
      events.map(({ kind, kv, cause }) => [at, latin1(kv.key), kind, cause]),
    );
    const [one, other] = [JSON.stringify(actual), JSON.stringify(expected)];
    if (one !== other) return `changes ${one}, its twin says ${other}`;
    if (revision === step.revision) return undefined;
    return `revision ${String(step.revision)}, its twin says ${String(revision)}`;
  }
}

function isCovered(command: Command, outcome: CommandOutcome): boolean {
  if (command.kind === "format-version") return true;
  if (!("namespaceId" in command) || command.namespaceId !== NAMESPACE_ID) return false;
  if (!outcome.ok && !COVERED_REFUSALS.has(outcome.failure.code)) return false;
  if (command.kind !== "client") return true;
  if (command.epoch !== 0 && command.epoch !== FIRST_EPOCH) return false;
  return command.identity.kind === "none" || command.identity.kind === "client";
}

/** Refusals by code: the twin has no messages. A replayed answer may lack what it read, when that is large. */
function comparable(outcome: ReturnType<Model["apply"]>): unknown {
  if (!outcome.ok) return { ok: false, code: "code" in outcome ? outcome.code : outcome.failure.code };
  const { result, replayed } = outcome;
  if (!replayed) return outcome;
  if (result.kind === "delete")
    return { kind: result.kind, revision: result.revision, deleted: result.deleted };
  if (result.kind !== "txn") return outcome;
  const { kind, revision, succeeded, failures } = result;
  return { kind, revision, succeeded, failures: failures.map(({ index }) => index) };
}

function describe(command: Command): string {
  return command.kind === "client" ? command.operation.kind : command.kind;
}

/** As text in which equal values are equal, whatever kind of bytes they hold and in whatever order their fields are. */
function plain(value: unknown): string {
  if (value instanceof Uint8Array) return JSON.stringify(latin1(value));
  if (Array.isArray(value)) return `[${value.map(plain).join(",")}]`;
  if (value === undefined) return "undefined";
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const fields = Object.entries(value)
    .filter(([, field]) => field !== undefined)
    .sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${fields.map(([name, field]) => `${name}:${plain(field)}`).join(",")}}`;
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}
