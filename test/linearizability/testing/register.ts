/** A source of good histories: a correct cell, with clients whose requests overlap, get lost, and arrive late. */
import { History } from "../history.ts";
import { compareAndSet, keysOf } from "../words.ts";
import type { KeyInput, KeyOutput, KeyStep, Seen, StepOutput } from "../words.ts";
import type { SmallDice } from "./dice.ts";
import { perform } from "./dumb-cell.ts";
import type { CellKeys } from "./dumb-cell.ts";

export interface Shape {
  readonly keys: readonly string[];
  readonly processes: number;
  readonly operations: number;
  /** Of an operation: to lose its answer; half of those still take effect, some of them late. */
  readonly unknownChance: number;
  readonly notAppliedChance?: number;
  /** Of an operation: to be a transaction over several keys. */
  readonly txnChance: number;
  /** Before an operation: that somebody else's write takes a revision. */
  readonly foreignChance: number;
  /** Of an answer: not to tell its revisions and versions. */
  readonly tacitChance?: number;
  /** How long one leg of a request takes at most; 0: all at once. */
  readonly legMax: number;
}

interface Client {
  readonly name: string;
  /** What it saw last of each key; its next compare-and-set starts from there. */
  readonly known: Map<string, Seen | null>;
}

export function simulate(dice: SmallDice, shape: Shape): History {
  const history = new History();
  /** The next one last. */
  const queue: { readonly at: number; readonly run: () => void }[] = [];
  let now = 0;
  let revision = 1;
  let values = 0;
  let keys: CellKeys = new Map();
  const leg = (): number => dice.between(0, shape.legMax);
  const schedule = (delay: number, run: () => void): void => {
    const event = { at: now + delay, run };
    let at = queue.length;
    while (at > 0 && queue[at - 1]!.at <= event.at) at -= 1;
    queue.splice(at, 0, event);
  };
  const take = (input: KeyInput): KeyOutput => {
    if (dice.chance(shape.foreignChance)) revision += dice.between(1, 2);
    const { keys: next, changed, output } = perform(keys, input, revision + 1);
    if (changed) revision += 1;
    keys = next;
    return { ...output, revision };
  };
  const fresh = (): string => `v${(values += 1)}`;
  const operate = (client: Client): void => {
    if (history.size >= shape.operations) return;
    const input = ask(dice, { shape, client, fresh });
    const id = history.begin(client.name, input, now);
    const again = (): void => schedule(leg(), () => operate(client));
    if (dice.chance(shape.notAppliedChance ?? 0)) {
      history.notApplied(id);
      again();
      return;
    }
    if (dice.chance(shape.unknownChance)) {
      if (dice.chance(0.5)) schedule(leg() * dice.pick([1, 1, 20]), () => void take(input));
      if (dice.chance(0.7)) history.unknown(id);
      schedule(2 * leg(), again);
      return;
    }
    schedule(leg(), () => {
      const output = take(input);
      schedule(leg(), () => {
        learn(client, input, output);
        history.ok(id, dice.chance(shape.tacitChance ?? 0) ? tacit(output) : output, now);
        again();
      });
    });
  };
  for (let process = 1; process <= shape.processes; process += 1) {
    schedule(leg(), () => operate({ name: `p${process}`, known: new Map() }));
  }
  for (let event = queue.pop(); event !== undefined; event = queue.pop()) {
    now = event.at;
    event.run();
  }
  return history;
}

function ask(
  dice: SmallDice,
  { shape, client, fresh }: { readonly shape: Shape; readonly client: Client; readonly fresh: () => string },
): KeyInput {
  const key = dice.pick(shape.keys);
  if (dice.chance(shape.txnChance)) {
    const steps = (): KeyStep[] =>
      shape.keys.filter(() => dice.chance(0.6)).map((one) => step(dice, one, fresh));
    const txn: KeyInput = {
      kind: "txn",
      compares: compares(dice, { shape, client }),
      success: steps(),
      failure: steps(),
    };
    // Without any key it says nothing about keys.
    return keysOf(txn).length > 0 ? txn : { kind: "get", key };
  }
  if (dice.chance(0.7)) return step(dice, key, fresh);
  const known = client.known.get(key);
  const read = dice.chance(0.5);
  if (known === null || known === undefined) return compareAndSet(key, { absent: true }, fresh(), read);
  const { value, modRevision = 1, version = 1 } = known;
  return compareAndSet(key, dice.pick([{ value }, { modRevision }, { version }]), fresh(), read);
}

function step(dice: SmallDice, key: string, fresh: () => string): KeyStep {
  const kind = dice.pick(["get", "get", "get", "put", "put", "put", "delete"] as const);
  return kind === "put" ? { kind, key, value: fresh() } : { kind, key };
}

function compares(
  dice: SmallDice,
  { shape, client }: { readonly shape: Shape; readonly client: Client },
): Extract<KeyInput, { kind: "txn" }>["compares"] {
  return shape.keys
    .filter(() => dice.chance(0.5))
    .map((key) => {
      const known = client.known.get(key);
      const target = dice.pick(["value", "version", "create-revision", "mod-revision"] as const);
      const operator = dice.pick(["=", "=", "=", "=", "!=", "<", ">"] as const);
      const number = {
        version: known?.version,
        "create-revision": known?.createRevision,
        "mod-revision": known?.modRevision,
      };
      const operand = target === "value" ? (known?.value ?? "v1") : (number[target] ?? dice.between(0, 3));
      return { key, target, operator, operand };
    });
}

function learn(client: Client, input: KeyInput, output: KeyOutput): void {
  if (input.kind !== "txn") {
    if (output.kind !== "txn") learnStep(client, input, output);
    return;
  }
  if (output.kind !== "txn") return;
  const steps = output.succeeded ? input.success : input.failure;
  for (const [index, one] of steps.entries()) learnStep(client, one, output.responses[index]!);
}

function learnStep(client: Client, input: KeyStep, output: StepOutput): void {
  if (output.kind === "get") client.known.set(input.key, output.found);
  if (output.kind === "delete") client.known.set(input.key, null);
  if (input.kind !== "put" || output.kind !== "put") return;
  const { revision: modRevision = 0, createRevision = 0, version = 0 } = output;
  client.known.set(input.key, { value: input.value, modRevision, createRevision, version });
}

/** What a door without revisions would tell. */
export function tacit(output: KeyOutput): KeyOutput {
  const silent = ["revision", "createRevision", "modRevision", "version"];
  return JSON.parse(
    JSON.stringify(output, (name, value: unknown) => (silent.includes(name) ? undefined : value)),
  ) as KeyOutput;
}
