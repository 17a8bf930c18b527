/**
 * What answers showed of each key, along the cell's order of revisions. A key that is shown with a create revision and a
 * version was that very incarnation at every revision since, with at most that version; and nobody wrote it after the mod
 * revision that is shown. So a write whose own revision is not known fits between two sightings only if the later one
 * leaves room for it, which spares the search most attempts to place what nobody saw.
 */
import type { OperationFacts } from "./facts.ts";
import type { KeyStep, Seen, StepOutput } from "./words.ts";

interface Sighting {
  /** The key was like this just before this revision's write, or when this revision was read. */
  readonly revision: number;
  readonly create: number;
  readonly version: number;
  readonly mod: number | undefined;
}

export class Sightings {
  private readonly ofKey: ReadonlyMap<string, readonly Sighting[]>;

  constructor(members: readonly OperationFacts[]) {
    const ofKey = new Map<string, Sighting[]>();
    for (const member of members) {
      for (const [key, sighting] of sightingsOf(member)) {
        const all = ofKey.get(key) ?? [];
        ofKey.set(key, all);
        all.push(sighting);
      }
    }
    for (const all of ofKey.values()) all.sort((a, b) => a.revision - b.revision);
    this.ofKey = ofKey;
  }

  /** Whether a write at `revision` or later may have left the key like this, as far as the next sighting tells. */
  allows(
    key: string,
    revision: number,
    state: { readonly create: number; readonly version: number } | undefined,
  ): boolean {
    const next = this.next(key, revision);
    if (next === undefined) return true;
    if (next.mod !== undefined && next.mod < revision) return false;
    if (next.create >= revision) return true;
    return state?.create === next.create && state.version <= next.version;
  }

  private next(key: string, revision: number): Sighting | undefined {
    const all = this.ofKey.get(key) ?? [];
    let low = 0;
    let high = all.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (all[middle]!.revision < revision) low = middle + 1;
      else high = middle;
    }
    return all[low];
  }
}

function sightingsOf({
  operation,
  revision,
  reflects,
}: OperationFacts): readonly (readonly [string, Sighting])[] {
  const { input, outcome } = operation;
  const at = revision ?? reflects;
  if (outcome.kind === "unknown" || at === undefined) return [];
  const { output } = outcome;
  const found: (readonly [string, Sighting])[] = [];
  const add = (key: string, sighting: Sighting | undefined): void => {
    if (sighting !== undefined) found.push([key, sighting]);
  };
  if (input.kind !== "txn" || output.kind !== "txn") {
    if (input.kind !== "txn" && output.kind !== "txn") add(input.key, before(input, output, at));
    return found;
  }
  for (const { index, actual } of output.failures ?? []) {
    const compare = input.compares[index];
    if (compare !== undefined) add(compare.key, seenAt(actual, at));
  }
  const written = new Set<string>();
  for (const [index, step] of (output.succeeded ? input.success : input.failure).entries()) {
    const response = output.responses[index];
    // Later steps see what earlier ones did.
    if (response !== undefined && !written.has(step.key)) add(step.key, before(step, response, at));
    if (step.kind !== "get") written.add(step.key);
  }
  return found;
}

function before(step: KeyStep, output: StepOutput, at: number): Sighting | undefined {
  if (output.kind === "get") return seenAt(output.found, at);
  const seen = seenAt(output.previous ?? null, at);
  if (seen !== undefined || step.kind !== "put" || output.kind !== "put") return seen;
  const { createRevision: create, version } = output;
  if (create === undefined || version === undefined || version < 2) return undefined;
  return { revision: at, create, version: version - 1, mod: undefined };
}

function seenAt(seen: Seen | null, at: number): Sighting | undefined {
  if (seen?.createRevision === undefined || seen.version === undefined) return undefined;
  return { revision: at, create: seen.createRevision, version: seen.version, mod: seen.modRevision };
}
