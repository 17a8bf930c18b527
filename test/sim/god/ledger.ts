/** One entry per index and term, everywhere and for ever (I2); one committed entry per index (I2, I3). */
import { crc32 } from "node:zlib";
import type { Entry } from "../../../cell/src/raft/types.ts";
import type { Reporter } from "../contract.ts";

const TWO_32 = 0x100000000;
const TERMS_MAX = 0x200000;

export class Ledger {
  readonly #reporter: Reporter;
  /** By term and index: checksum of the entry, and the term of the entry before it. */
  readonly #entries = new Map<number, number>();
  readonly #committed = new Map<number, number>();
  #highestCommit = 0;

  constructor(reporter: Reporter) {
    this.#reporter = reporter;
  }

  /** The newest entry that any member has ever known to be committed. */
  get highestCommit(): number {
    return this.#highestCommit;
  }

  /** undefined: not committed, or from before the history began. */
  committedTerm(index: number): number | undefined {
    return this.#committed.get(index);
  }

  /** Entries of one log, in order, behind one of `previousTerm`; undefined: what is before them is not known. */
  written(host: string, entries: readonly Entry[], previousTerm: number | undefined): void {
    let before = previousTerm;
    for (const entry of entries) {
      this.#entry(host, entry, before);
      before = entry.term;
    }
  }

  /** `host` knows that the entry at `index` is committed, and holds one of `term` there. */
  committed(host: string, index: number, term: number): void {
    const known = this.#committed.get(index);
    if (known === undefined) {
      this.#committed.set(index, term);
      if (index > this.#highestCommit) this.#highestCommit = index;
    } else if (known !== term) {
      this.#reporter.violation(
        "I2-committed",
        `${host} holds an entry of term ${String(term)} as committed at ${String(index)}, where one of term ${String(known)} is`,
      );
    }
  }

  #entry(host: string, entry: Entry, previousTerm: number | undefined): void {
    const key = entry.index * TERMS_MAX + entry.term;
    const checksum = crc32(entry.data, entry.kind === "configuration" ? 1 : 0);
    const known = this.#entries.get(key);
    if (known === undefined) {
      this.#entries.set(key, previousTerm === undefined ? checksum : checksum + (previousTerm + 1) * TWO_32);
      return;
    }
    const at = `${String(entry.index)} of term ${String(entry.term)}`;
    if (known % TWO_32 !== checksum) {
      this.#reporter.violation("I2-bytes", `${host} has other bytes at ${at} than somebody else`);
    }
    const knownPrevious = Math.floor(known / TWO_32) - 1;
    if (previousTerm !== undefined && knownPrevious >= 0 && knownPrevious !== previousTerm) {
      this.#reporter.violation(
        "I2-prefix",
        `${host} has ${at} behind an entry of term ${String(previousTerm)}, somebody else behind one of term ${String(knownPrevious)}`,
      );
    }
  }
}
