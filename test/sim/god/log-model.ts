/** The log of one disk, as terms by index: what its write-ahead log was told, and what it has called durable. */
import type { HardState } from "../../../cell/src/raft/types.ts";
import type { RaftInitialState } from "../../../cell/src/raft/types.ts";
import type { WalWrite } from "../../../cell/src/wal/types.ts";

/** Terms by index behind a start. */
export class LogTerms {
  startIndex: number;
  startTerm: number;
  readonly #terms: number[];

  constructor(startIndex: number, startTerm: number, terms: readonly number[] = []) {
    this.startIndex = startIndex;
    this.startTerm = startTerm;
    this.#terms = [...terms];
  }

  get last(): number {
    return this.startIndex + this.#terms.length;
  }

  /** undefined: outside of [start, last]. */
  termAt(index: number): number | undefined {
    return index === this.startIndex ? this.startTerm : this.#terms[index - this.startIndex - 1];
  }

  /** Holds that entry, or a state that came after it. */
  covers(index: number, term: number): boolean {
    return index <= this.startIndex || this.#terms[index - this.startIndex - 1] === term;
  }

  restart(index: number, term: number): void {
    this.startIndex = index;
    this.startTerm = term;
    this.#terms.length = 0;
  }

  /** Everything from the first entry's index on is superseded. */
  append(entries: WalWrite["entries"]): void {
    const first = entries[0];
    if (first === undefined) return;
    if (first.index <= this.last) this.#terms.length = Math.max(0, first.index - this.startIndex - 1);
    for (const entry of entries) this.#terms.push(entry.term);
  }

  write(write: WalWrite): void {
    if (write.snapshot !== undefined) this.restart(write.snapshot.index, write.snapshot.term);
    this.append(write.entries);
  }
}

const NOTHING: HardState = { term: 0, vote: 0, commit: 0 } as unknown as HardState;

/** One member's log over its lives on one disk. */
export class DiskLog {
  readonly host: string;
  readonly memberId: number;
  readonly incarnation: string;
  /** What completions have called durable. */
  durable: LogTerms;
  durableHardState: HardState;
  /** With what is on its way. */
  written: LogTerms;
  writtenHardState: HardState;
  /** Indexes of configuration entries in `written`, ascending. */
  configurations: number[] = [];
  /** The highest term in which it acted as a leader. */
  ledTerm = 0;
  /** Whom it granted its vote, by term. */
  readonly votes: Map<number, number> = new Map<number, number>();
  /** The applied index that survives a power cut. */
  barrierIndex = 0;
  #queue: WalWrite[] = [];

  constructor(identity: { readonly host: string; readonly memberId: number; readonly incarnation: string }) {
    this.host = identity.host;
    this.memberId = identity.memberId;
    this.incarnation = identity.incarnation;
    this.durable = new LogTerms(0, 0);
    this.written = new LogTerms(0, 0);
    this.durableHardState = NOTHING;
    this.writtenHardState = NOTHING;
  }

  /** What a start found on the disk takes the place of what was believed to be there. */
  recovered(initial: RaftInitialState): void {
    const { logStart, entries, hardState } = initial;
    const terms = entries.map((entry) => entry.term);
    this.durable = new LogTerms(logStart.index, logStart.term, terms);
    this.written = new LogTerms(logStart.index, logStart.term, terms);
    this.durableHardState = hardState ?? NOTHING;
    this.writtenHardState = this.durableHardState;
    this.configurations = entries.filter(isConfiguration).map((entry) => entry.index);
    this.#queue = [];
  }

  /** @returns what to call when the write and all before it are durable. */
  begin(write: WalWrite): () => void {
    this.written.write(write);
    if (write.hardState !== undefined) this.writtenHardState = write.hardState;
    const from = write.snapshot === undefined ? write.entries[0]?.index : 0;
    if (from !== undefined) this.configurations = this.configurations.filter((index) => index < from);
    for (const entry of write.entries) if (isConfiguration(entry)) this.configurations.push(entry.index);
    this.#queue.push(write);
    return () => this.#finish(write);
  }

  /**
   * The last index that a crash now cannot take back: what is durable, cut to where writes on their way may or may not
   * supersede it.
   */
  get certainIndex(): number {
    let certain = this.durable.last;
    for (const { snapshot, entries } of this.#queue) {
      const first = entries[0];
      if (snapshot !== undefined) certain = Math.min(certain, this.durable.startIndex);
      if (first !== undefined) certain = Math.min(certain, first.index - 1);
    }
    return Math.max(certain, this.durable.startIndex);
  }

  #finish(write: WalWrite): void {
    if (!this.#queue.includes(write)) return;
    while (true) {
      const next = this.#queue.shift();
      if (next === undefined) return;
      this.durable.write(next);
      if (next.hardState !== undefined) this.durableHardState = next.hardState;
      if (next === write) return;
    }
  }
}

function isConfiguration(entry: { readonly kind: string }): boolean {
  return entry.kind === "configuration";
}
