/**
 * The single machine that is fed with each committed entry once, in order. It decides configuration changes with the
 * production functions but without the replica's code around them, so that what is broken there is not broken here.
 */
import { crc32 } from "node:zlib";
import { createMachine } from "../../../cell/src/machine/index.ts";
import type { LoadableMachine } from "../../../cell/src/machine/index.ts";
import { advanceMembership, decideChange } from "../../../cell/src/machine/membership.ts";
import type { Membership } from "../../../cell/src/machine/membership.ts";
import type { Applied, RowMutation } from "../../../cell/src/machine/types.ts";
import { applyChange, decodeConfigurationChange, validateChange } from "../../../cell/src/raft/index.ts";
import type { ConfigurationChange, Entry } from "../../../cell/src/raft/types.ts";
import { membershipRow } from "../../../cell/src/replica/state.ts";
import { KEYSPACES, openMemoryStore } from "../../../cell/src/store/index.ts";
import type { MemoryStore, StoreReader } from "../../../cell/src/store/index.ts";

const ROWS_A_SCAN = 1024;
const COMPACTED_ROWS_A_SLICE = 10_000;

/** What one entry did. `membership` is set when a configuration change was accepted. */
export interface ShadowStep {
  readonly applied: Applied;
  readonly membership?: { readonly before: Membership; readonly after: Membership };
}

export class Shadow {
  readonly machine: LoadableMachine = createMachine({ crc32 });
  readonly store: MemoryStore = openMemoryStore();
  #membership: Membership;

  /** Begins as a copy of a member's state. */
  constructor(from: StoreReader, membership: Membership) {
    copyRows(from, this.store);
    this.#membership = membership;
    this.machine.load(this.store);
  }

  get membership(): Membership {
    return this.#membership;
  }

  apply(entry: Entry): ShadowStep {
    if (entry.kind === "configuration") return this.#configuration(entry);
    const applied = this.machine.apply([entry], this.store, true);
    this.#write(applied.mutations);
    return { applied };
  }

  /** Physical compaction to its end, so that the rows can be compared with those of members that are done with it. */
  compact(): void {
    while (true) {
      const slice = this.machine.compactSlice(this.store, COMPACTED_ROWS_A_SLICE);
      this.#write(slice.mutations);
      if (slice.done) return;
    }
  }

  #configuration(entry: Entry): ShadowStep {
    const change = decodeChange(entry.data);
    const verdict = change === undefined ? undefined : decideChange(this.#membership, change);
    const before = this.#membership;
    if (
      change === undefined ||
      verdict?.accepted !== true ||
      validateChange(before.configuration, change) !== undefined
    ) {
      return { applied: this.#external(entry, []) };
    }
    const configuration = applyChange(before.configuration, change);
    this.#membership = advanceMembership(before, entry.index, verdict.plan, configuration);
    const applied = this.#external(entry, [membershipRow(this.#membership)]);
    return { applied, membership: { before, after: this.#membership } };
  }

  #external(entry: Entry, mutations: readonly RowMutation[]): Applied {
    const applied = this.machine.applyExternal({ index: entry.index, mutations });
    this.#write(applied.mutations);
    return applied;
  }

  #write(mutations: readonly RowMutation[]): void {
    if (mutations.length === 0) return;
    this.store.write((batch) => {
      for (const { keyspace, key, value } of mutations) {
        if (value === undefined) batch.delete(keyspace, key);
        else batch.put(keyspace, key, value);
      }
    });
  }
}

function decodeChange(data: Uint8Array): ConfigurationChange | undefined {
  try {
    return decodeConfigurationChange(data);
  } catch {
    return undefined;
  }
}

function copyRows(from: StoreReader, to: MemoryStore): void {
  for (const keyspace of KEYSPACES) {
    let next: Uint8Array = new Uint8Array(0);
    while (true) {
      const rows = from.scan(keyspace, { from: next, limit: ROWS_A_SCAN });
      to.write((batch) => {
        for (const { key, value } of rows) batch.put(keyspace, key, value);
      });
      const last = rows.at(-1);
      if (last === undefined || rows.length < ROWS_A_SCAN) break;
      next = Buffer.concat([last.key, Buffer.alloc(1)]);
    }
  }
}
