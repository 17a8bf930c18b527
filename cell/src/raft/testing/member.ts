import assert from "node:assert/strict";
import { createRaft, decodeConfigurationChange, validateChange } from "../index.ts";
import type {
  Append,
  Configuration,
  Entry,
  HardState,
  LogIndex,
  MemberId,
  Message,
  RaftNode,
  RaftOptions,
  Ready,
  SnapshotMetadata,
  Term,
} from "../types.ts";

/** What survives a crash. */
export interface TestDisk {
  hardState: HardState | undefined;
  logStart: { index: LogIndex; term: Term };
  entries: Entry[];
}

/** What became of an entry. */
export interface Applied {
  readonly entry: Entry;
  readonly outcome: "applied" | "refused";
}

/**
 * A host as small as it can be: a disk that completes appends when told to, and a state machine that remembers what it
 * applied and which configuration was in force at each index.
 */
export class TestMember {
  readonly id: MemberId;
  readonly options: Partial<RaftOptions> & Pick<RaftOptions, "random">;
  node: RaftNode;
  disk: TestDisk;
  /** Handed out and not yet durable. */
  writes: Append[] = [];
  /** By index, from the founding snapshot or an installed one on. */
  applied: Map<LogIndex, Entry> = new Map();
  appliedIndex: LogIndex;
  configurations: Map<LogIndex, Configuration> = new Map();
  /** Called for each change; returning true vetoes it (R36). */
  veto: (entry: Entry) => boolean = () => false;

  constructor(
    id: MemberId,
    options: Partial<RaftOptions> & Pick<RaftOptions, "random">,
    start: SnapshotMetadata,
  ) {
    this.id = id;
    this.options = options;
    this.disk = {
      hardState: undefined,
      logStart: { index: start.index, term: start.term },
      entries: [],
    };
    this.appliedIndex = start.index;
    this.configurations.set(start.index, start.configuration);
    this.node = this.#boot();
  }

  get configuration(): Configuration {
    return this.configurationAt(this.appliedIndex);
  }

  /** The newest configuration at or below `index`. */
  configurationAt(index: LogIndex): Configuration {
    const known = [...this.configurations.keys()].filter((at) => at <= index).sort((a, b) => b - a)[0];
    assert(known !== undefined, `the configuration at ${index} is known`);
    return this.configurations.get(known)!;
  }

  /** A snapshot of the state machine as it is now. */
  snapshot(): SnapshotMetadata {
    const index = this.appliedIndex;
    const term = this.node.termAt(index);
    assert(term !== undefined, "the applied index is in the log");
    return { index, term, configuration: this.configuration };
  }

  ready(): Ready {
    const ready = this.node.ready();
    if (ready.append !== undefined) this.writes.push(ready.append);
    return ready;
  }

  /** The oldest append becomes durable. @returns the messages it held back */
  finishWrite(): readonly Message[] {
    const write = this.#persistOldest();
    this.node.appended(write.token);
    return write.held;
  }

  apply(entries: readonly Entry[]): Applied[] {
    return entries.map((entry) => {
      const outcome = this.#applyOne(entry);
      this.node.applied(entry.index);
      return { entry, outcome };
    });
  }

  /**
   * A power cut and a new start. Of the appends under way the first `writesKept` reached the disk, unreported. The
   * state machine falls back to `fallBack(lowest, highest)`, anywhere that the log can bring it forward from.
   */
  restart(
    writesKept = 0,
    fallBack: (lowest: number, highest: number) => number = (_lowest, highest) => highest,
  ): void {
    for (let left = writesKept; left > 0; left--) this.#persistOldest();
    this.writes = [];
    const appliedIndex = fallBack(this.disk.logStart.index, this.appliedIndex) as LogIndex;
    this.appliedIndex = appliedIndex;
    for (const index of this.applied.keys()) if (index > appliedIndex) this.applied.delete(index);
    for (const index of this.configurations.keys()) {
      if (index > appliedIndex) this.configurations.delete(index);
    }
    this.node = this.#boot();
  }

  /** Forgets the log up to `index`, in memory and on disk. */
  compact(index: LogIndex): void {
    const term = this.node.termAt(index);
    this.node.compact(index);
    if (term === undefined || index <= this.disk.logStart.index) return;
    this.disk.logStart = { index, term };
    this.disk.entries = this.disk.entries.filter((entry) => entry.index > index);
  }

  #persistOldest(): Append {
    const write = this.writes.shift();
    assert(write !== undefined, "a write is under way");
    persist(this.disk, write);
    if (write.snapshot !== undefined) this.#install(write.snapshot);
    return write;
  }

  #boot(): RaftNode {
    const { hardState, logStart, entries } = this.disk;
    return createRaft(
      { ...this.options, id: this.id },
      {
        ...(hardState === undefined ? {} : { hardState }),
        logStart: { ...logStart },
        entries: [...entries],
        applied: this.appliedIndex,
        configuration: this.configuration,
      },
    );
  }

  #install(snapshot: SnapshotMetadata): void {
    this.applied.clear();
    this.configurations.clear();
    this.configurations.set(snapshot.index, snapshot.configuration);
    this.appliedIndex = snapshot.index;
  }

  #applyOne(entry: Entry): Applied["outcome"] {
    assert.equal(entry.index, this.appliedIndex + 1, `member ${this.id} applies every entry in order, once`);
    this.applied.set(entry.index, entry);
    this.appliedIndex = entry.index;
    if (entry.kind === "normal") return "applied";
    const change = decodeConfigurationChange(entry.data);
    if (validateChange(this.configuration, change) !== undefined || this.veto(entry)) {
      this.node.refuseConfiguration(entry.index);
      return "refused";
    }
    this.configurations.set(entry.index, this.node.applyConfiguration(entry.index, change));
    return "applied";
  }
}

/** The contract of an append: snapshot first, then drop everything from the first entry on, then append (R7). */
function persist(disk: TestDisk, write: Append): void {
  if (write.snapshot !== undefined) {
    disk.logStart = { index: write.snapshot.index, term: write.snapshot.term };
    disk.entries = [];
  }
  const first = write.entries[0];
  if (first !== undefined) {
    disk.entries = disk.entries.filter((entry) => entry.index < first.index);
    disk.entries.push(...write.entries.filter((entry) => entry.index > disk.logStart.index));
  }
  if (write.hardState !== undefined) replaceHardState(disk, write.hardState);
  const last = disk.entries.at(-1)?.index ?? disk.logStart.index;
  assert((disk.hardState?.commit ?? 0) <= last, "the disk never names a commit index beyond its log (I5)");
}

/** I5. */
function replaceHardState(disk: TestDisk, next: HardState): void {
  const before = disk.hardState;
  if (before !== undefined) {
    assert(next.term >= before.term, "the term on disk never falls");
    assert(next.term > before.term || before.vote === 0 || next.vote === before.vote, "one vote a term");
    assert(next.commit >= before.commit, "the commit index on disk never falls");
  }
  disk.hardState = next;
}
