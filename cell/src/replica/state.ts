import { crc32 } from "node:zlib";
import { assert } from "../invariant.ts";
import { createMachine } from "../machine/index.ts";
import type { LoadableMachine } from "../machine/index.ts";
import {
  advanceMembership,
  decideChange,
  decodeMembership,
  encodeMembership,
} from "../machine/membership.ts";
import type { ChangeRefusal, Membership } from "../machine/membership.ts";
import type { Applied, MachineEntry, RowMutation } from "../machine/types.ts";
import type { Configuration, ConfigurationChange, LogIndex } from "../raft/types.ts";
import type { Store } from "../store/types.ts";

const STRAY_ROWS_A_SLICE = 512;
const MEMBERSHIP_KEY = Buffer.from("membership");

/** Checks and applies a change in the consensus core; a string refuses it. */
export type ConfigurationStepper = (
  change: ConfigurationChange,
) => { readonly configuration: Configuration } | { readonly refused: string };

export type ChangeOutcome =
  | { readonly accepted: true; readonly configurationIndex: LogIndex }
  | { readonly accepted: false; readonly reason: ChangeRefusal | "invalid-change"; readonly detail: string };

/**
 * The applied state of a member: the store, the machine over it, and the membership. Every change is one atomic
 * batch that also holds the applied index (W10).
 */
export class CellState {
  #store: Store;
  readonly machine: LoadableMachine;
  #membership: Membership;
  #logEnd: LogIndex | undefined;

  constructor(store: Store) {
    this.machine = createMachine({ crc32 });
    this.#store = store;
    this.#membership = readMembership(store);
    this.machine.load(store);
  }

  get store(): Store {
    return this.#store;
  }

  get membership(): Membership {
    return this.#membership;
  }

  get appliedIndex(): LogIndex {
    return this.machine.appliedIndex;
  }

  /** Bytes of live and retained history, over all namespaces: what the quota is measured against. */
  get logicalBytes(): number {
    return this.machine.historyBytes;
  }

  /**
   * Where the log ends that was found at start. The store takes history before the rest, so it may hold rows that only
   * entries behind the state explain. Should the log not reach them any more, they go before anything new is applied.
   */
  logEndsAt(index: LogIndex): void {
    this.#logEnd = index;
  }

  /** Deletes history above the revision: of entries that this member had applied once, and that its log has lost. */
  dropStrayHistory(): void {
    for (;;) {
      const stray = this.machine.strayHistory(this.#store, STRAY_ROWS_A_SLICE);
      if (stray.length === 0) return;
      this.writeRows(stray);
    }
  }

  apply(entries: readonly MachineEntry[], wantEvents: boolean): Applied {
    if (this.#logEnd !== undefined && (entries.at(-1)?.index ?? 0) > this.#logEnd) {
      this.#logEnd = undefined;
      this.dropStrayHistory();
    }
    const before = this.machine.appliedIndex;
    const applied = this.machine.apply(entries, this.#store, wantEvents);
    assert(this.machine.appliedIndex === before + entries.length, "every entry is applied once, in order", {
      before,
      entries: entries.length,
      after: this.machine.appliedIndex,
    });
    this.writeRows(applied.mutations);
    return applied;
  }

  /** A configuration entry: decided from replicated state alone, then handed to the consensus core. */
  applyConfiguration(
    index: LogIndex,
    change: ConfigurationChange | undefined,
    step: ConfigurationStepper,
  ): ChangeOutcome {
    const refuse = (reason: ChangeRefusal | "invalid-change", detail: string): ChangeOutcome => {
      this.writeRows(this.machine.applyExternal({ index, mutations: [] }).mutations);
      return { accepted: false, reason, detail };
    };
    if (change === undefined) return refuse("malformed-plan", "the entry holds no configuration change");
    const verdict = decideChange(this.#membership, change);
    if (!verdict.accepted) return refuse(verdict.reason, "refused by the membership");
    const stepped = step(change);
    if ("refused" in stepped) return refuse("invalid-change", stepped.refused);
    this.#membership = advanceMembership(this.#membership, index, verdict.plan, stepped.configuration);
    const row = {
      keyspace: "meta",
      key: MEMBERSHIP_KEY,
      value: encodeMembership(this.#membership),
    } as const;
    this.writeRows(this.machine.applyExternal({ index, mutations: [row] }).mutations);
    return { accepted: true, configurationIndex: index };
  }

  /**
   * The state of another cell from here on, in one batch: counters raised by `lift`, then `entry`, then the membership,
   * which takes an index of its own.
   */
  becomeOther(lift: number, entry: MachineEntry, membership: Membership): void {
    this.machine.lift(lift);
    const applied = this.machine.apply([entry], this.#store, false);
    const index = membership.configurationIndex;
    const row = membershipRow(membership);
    const external = this.machine.applyExternal({ index, mutations: [row] });
    this.writeRows([...applied.mutations, ...external.mutations]);
    this.#membership = membership;
  }

  /**
   * Writes rows; also local ones that are no outcome of a command (physical compaction).
   *
   * @param mutations kept: nobody changes their bytes
   */
  writeRows(mutations: readonly RowMutation[]): void {
    if (mutations.length === 0) return;
    this.#store.write((batch) => {
      for (const row of mutations) {
        if (row.value === undefined) batch.delete(row.keyspace, row.key);
        else batch.put(row.keyspace, row.key, row.value, row.isNew);
      }
    }, true);
  }

  /** A snapshot took the place of the state. */
  replace(store: Store): void {
    this.#store = store;
    this.#membership = readMembership(store);
    this.machine.load(store);
  }
}

function readMembership(store: Store): Membership {
  const row = store.get("meta", MEMBERSHIP_KEY);
  assert(row !== undefined, "the store holds a membership row");
  return decodeMembership(row);
}

/** Whether the store has ever held a cell's state (a fresh joiner's has not). */
export function holdsState(store: Store): boolean {
  return store.get("meta", MEMBERSHIP_KEY) !== undefined;
}

/** The row that makes a fresh store this cell's. */
export function membershipRow(membership: Membership): RowMutation {
  return { keyspace: "meta", key: MEMBERSHIP_KEY, value: encodeMembership(membership) };
}
