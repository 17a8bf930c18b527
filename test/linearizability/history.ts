/** Records what clients asked and were told, and keeps it as lines of JSON. */
import type { KeyOperation } from "./facts.ts";
import type { Outcome, Time } from "./operation.ts";
import type { KeyInput, KeyOutput } from "./words.ts";

/** Refused, and certainly without effect. */
export interface NotApplied {
  readonly process: string;
  readonly input: KeyInput;
  readonly invokedAt: Time;
}

interface Recorded {
  readonly process: string;
  readonly input: KeyInput;
  readonly invokedAt: Time;
  /** undefined: nobody was told; as good as unknown. */
  outcome: Outcome<KeyOutput> | { readonly kind: "not-applied" } | undefined;
}

/** Of one operation, until its outcome is known. */
export type OperationId = number & { readonly __operation: true };

export class History {
  private readonly recorded: Recorded[] = [];

  /** How many operations were begun. */
  get size(): number {
    return this.recorded.length;
  }

  /** An operation whose outcome is never told counts as unknown: its client may have died. */
  begin(process: string, input: KeyInput, at: Time): OperationId {
    return (this.recorded.push({ process, input, invokedAt: at, outcome: undefined }) - 1) as OperationId;
  }

  ok(id: OperationId, output: KeyOutput, at: Time): void {
    this.end(id, { kind: "ok", output, returnedAt: at });
  }

  /** It leaves the history. Should one of its values be seen all the same, that is a violation. */
  notApplied(id: OperationId): void {
    this.end(id, { kind: "not-applied" });
  }

  unknown(id: OperationId): void {
    this.end(id, { kind: "unknown" });
  }

  operations(): readonly KeyOperation[] {
    return this.recorded.flatMap(({ process, input, invokedAt, outcome }) =>
      outcome?.kind === "not-applied"
        ? []
        : [{ process, input, invokedAt, outcome: outcome ?? { kind: "unknown" } }],
    );
  }

  refused(): readonly NotApplied[] {
    return this.recorded.flatMap(({ process, input, invokedAt, outcome }) =>
      outcome?.kind === "not-applied" ? [{ process, input, invokedAt }] : [],
    );
  }

  /** One line for each operation, in the order in which they were begun. */
  toJsonLines(): string {
    return this.recorded.map((one) => `${JSON.stringify(one)}\n`).join("");
  }

  /** Of lines that {@link toJsonLines} made. Throws `TypeError` for a line that is no operation. */
  static fromJsonLines(text: string): History {
    const history = new History();
    for (const [index, line] of text.split("\n").entries()) {
      if (line === "") continue;
      const read: unknown = JSON.parse(line);
      if (!isRecorded(read)) throw new TypeError(`line ${index + 1} is no operation: ${line.slice(0, 200)}`);
      history.recorded.push({ ...read, outcome: read.outcome });
    }
    return history;
  }

  private end(id: OperationId, outcome: NonNullable<Recorded["outcome"]>): void {
    const recorded = this.recorded[id];
    if (recorded === undefined) throw new TypeError(`no operation ${id} was begun`);
    if (recorded.outcome !== undefined) throw new TypeError(`operation ${id} has ended before`);
    if (outcome.kind === "ok") {
      if (outcome.returnedAt < recorded.invokedAt)
        throw new TypeError(`operation ${id} returned before it began`);
      if (outcome.output.kind !== recorded.input.kind) {
        throw new TypeError(`a ${recorded.input.kind} cannot be answered like a ${outcome.output.kind}`);
      }
    }
    recorded.outcome = outcome;
  }
}

function isRecorded(read: unknown): read is Recorded {
  if (typeof read !== "object" || read === null) return false;
  const { process, input, invokedAt } = read as Partial<Record<keyof Recorded, unknown>>;
  return (
    typeof process === "string" &&
    typeof invokedAt === "number" &&
    typeof input === "object" &&
    input !== null
  );
}
