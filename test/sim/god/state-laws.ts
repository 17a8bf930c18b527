/** I4: whatever a member applied, its state is the one that the true history has at that index. */
import { ByteReader } from "../../../cell/src/machine/codec/primitives.ts";
import { CELL_NAMESPACE, META_STATE, metaKey } from "../../../cell/src/machine/keys.ts";
import type { MachineEntry } from "../../../cell/src/machine/types.ts";
import type { Entry } from "../../../cell/src/raft/types.ts";
import type { StoreReader } from "../../../cell/src/store/types.ts";
import type { Reporter } from "../contract.ts";
import type { Ledger } from "./ledger.ts";
import { nameOf } from "./life.ts";
import type { Life } from "./life.ts";
import type { MembershipLaws } from "./membership-laws.ts";
import type { CellTruth } from "./truth.ts";

const STATE_ROW = metaKey(CELL_NAMESPACE, META_STATE);

export class StateLaws {
  readonly #reporter: Reporter;
  readonly #truth: CellTruth;
  readonly #ledger: Ledger;
  readonly #membership: MembershipLaws;

  constructor(reporter: Reporter, truth: CellTruth, ledger: Ledger, membership: MembershipLaws) {
    this.#reporter = reporter;
    this.#truth = truth;
    this.#ledger = ledger;
    this.#membership = membership;
  }

  /** A member finds its state on its disk. */
  opened(life: Life): void {
    this.#compare(life, "starts with");
    this.#membership.applied(life);
  }

  /** An entry goes to the member to be applied: now it is history. */
  handed(life: Life, entry: Entry): void {
    this.#ledger.committed(life.host, entry.index, entry.term);
    this.#truth.feed(entry);
  }

  /** W13: nothing is applied that is not durable here. */
  applying(life: Life, entries: readonly MachineEntry[]): void {
    const { disk, state } = life;
    const last = entries.at(-1);
    const first = entries[0];
    if (first === undefined || last === undefined) return;
    if (first.index !== state.appliedIndex + 1) {
      this.#reporter.violation(
        "I4-order",
        `${nameOf(life)} applies from ${String(first.index)} on and stands at ${String(state.appliedIndex)}`,
      );
    }
    if (!disk.durable.covers(last.index, last.term)) {
      this.#reporter.violation(
        "W13",
        `${nameOf(life)} applies up to ${String(last.index)} of term ${String(last.term)}; its disk holds ${String(disk.durable.last)} (term ${String(disk.durable.termAt(last.index))} there)`,
      );
    }
    this.#catchUp(life, last.index);
    for (const entry of entries) this.#ledger.committed(life.host, entry.index, entry.term);
  }

  configurationApplying(life: Life, index: number): void {
    this.#catchUp(life, index);
  }

  applied(life: Life): void {
    this.#compare(life, "applied");
    this.#rowAgrees(life);
  }

  configurationApplied(life: Life, index: number): void {
    if (life.state.appliedIndex !== index) {
      this.#reporter.violation(
        "I4-order",
        `${nameOf(life)} applied a change at ${String(index)} and stands at ${String(life.state.appliedIndex)}`,
      );
    }
    this.#compare(life, "applied");
    this.#rowAgrees(life);
    this.#membership.applied(life);
  }

  /** A snapshot took the place of the state. */
  replaced(life: Life, before: number): void {
    const { state } = life;
    if (state.appliedIndex < before) {
      this.#reporter.violation(
        "I4-back",
        `${nameOf(life)} went back from ${String(before)} to ${String(state.appliedIndex)} with a snapshot`,
      );
    }
    this.#reporter.count("snapshots installed");
    this.#compare(life, "installed");
    this.#rowAgrees(life);
    this.#membership.applied(life);
  }

  /** Entries that were handed out while the member started, before its consensus core could be looked into. */
  #catchUp(life: Life, index: number): void {
    if (index <= this.#truth.appliedIndex) return;
    for (const entry of life.recovered) if (entry.index <= index) this.handed(life, entry);
  }

  #compare(life: Life, how: string): void {
    const { index, hash } = life.state.machine.digest;
    if (!this.#truth.begun || index < this.#truth.firstIndex) return;
    const expected = this.#truth.entry(index);
    if (expected === undefined) {
      this.#reporter.violation(
        "I4",
        `${nameOf(life)} ${how} ${String(index)}, which nobody was handed as committed (newest ${String(this.#truth.appliedIndex)})`,
      );
    }
    this.#reporter.count("digests compared");
    const { revision } = life.state.machine;
    if (expected.digest === hash && expected.revision === revision) return;
    this.#reporter.violation(
      "I4",
      `${nameOf(life)} ${how} ${String(index)}: digest ${hash.toString(16)} at revision ${String(revision)}, the true history has ${expected.digest.toString(16)} at revision ${String(expected.revision)}`,
    );
  }

  /** W10: the applied index is in the same batch as what was applied. */
  #rowAgrees(life: Life): void {
    const { state } = life;
    const stored = appliedIndexIn(state.store);
    if (stored === state.appliedIndex) return;
    this.#reporter.violation(
      "W10",
      `${nameOf(life)} applied ${String(state.appliedIndex)}; its store says ${String(stored)}`,
    );
  }
}

/** What the store's own row says was applied. */
export function appliedIndexIn(store: StoreReader): number | undefined {
  const row = store.get("meta", STATE_ROW);
  if (row === undefined) return undefined;
  const reader = new ByteReader(row);
  reader.varint();
  return reader.varint();
}
