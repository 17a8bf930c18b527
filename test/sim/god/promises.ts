/**
 * I5 and I6 at the disk: a member says nothing that its disk does not hold yet, takes back nothing it said, and finds
 * after a crash whatever it had promised before.
 */
import type { HardState, Message, RaftInitialState } from "../../../cell/src/raft/types.ts";
import type { WalWrite } from "../../../cell/src/wal/types.ts";
import type { Reporter } from "../contract.ts";
import type { Ledger } from "./ledger.ts";
import type { DiskLog } from "./log-model.ts";

export class Promises {
  readonly #reporter: Reporter;
  readonly #ledger: Ledger;

  constructor(reporter: Reporter, ledger: Ledger) {
    this.#reporter = reporter;
    this.#ledger = ledger;
  }

  /** A new life begins on a disk whose log is `disk`: call before {@link DiskLog.recovered}. */
  recovered(disk: DiskLog, initial: RaftInitialState): void {
    const found = initial.hardState;
    const { term, vote, commit } = disk.durableHardState;
    const foundTerm = found?.term ?? 0;
    const lost = (what: string): never =>
      this.#reporter.violation(
        "I5-promise",
        `${disk.host} (member ${String(disk.memberId)}) restarts: ${what}`,
      );
    if (foundTerm < term) lost(`its term was ${String(term)} on disk, it is ${String(foundTerm)}`);
    if (foundTerm === term && vote !== 0 && found?.vote !== vote) {
      lost(`its vote in term ${String(term)} was ${String(vote)} on disk, it is ${String(found?.vote ?? 0)}`);
    }
    if ((found?.commit ?? 0) < commit) {
      lost(`its commit index was ${String(commit)} on disk, it is ${String(found?.commit ?? 0)}`);
    }
    if (foundTerm < disk.ledTerm) {
      lost(`it acted as leader of term ${String(disk.ledTerm)}, it is in term ${String(foundTerm)} now`);
    }
    if (foundTerm === disk.ledTerm && foundTerm > 0 && found?.vote !== disk.memberId) {
      lost(
        `it acted as leader of term ${String(foundTerm)}, but its vote there is ${String(found?.vote ?? 0)}`,
      );
    }
    const promised = disk.votes.get(foundTerm);
    if (promised !== undefined && found?.vote !== promised) {
      lost(
        `it had voted for ${String(promised)} in term ${String(foundTerm)}, now for ${String(found?.vote ?? 0)}`,
      );
    }
    this.#logKept(disk, initial, lost);
  }

  /** Something goes into the log: call before {@link DiskLog.begin}. */
  writing(disk: DiskLog, write: WalWrite): void {
    const { host, written } = disk;
    if (write.hardState !== undefined) this.#hardState(disk, write.hardState, write);
    const first = write.entries[0];
    if (first === undefined) return;
    const start = write.snapshot?.index ?? written.startIndex;
    const last = write.snapshot?.index ?? written.last;
    if (first.index > last + 1 || first.index <= start) {
      this.#reporter.violation(
        "I2-gap",
        `${host} writes entries from ${String(first.index)} on into a log of ${String(start)}..${String(last)}`,
      );
    }
    if (write.snapshot === undefined) this.#superseded(disk, write);
    const before =
      write.snapshot !== undefined && first.index === write.snapshot.index + 1
        ? write.snapshot.term
        : written.termAt(first.index - 1);
    this.#ledger.written(host, write.entries, before);
  }

  /** Messages leave the member. */
  sending(disk: DiskLog, messages: readonly Message[]): void {
    for (const message of messages) this.#sending(disk, message);
  }

  /** Segments up to `index` may go. W9. */
  releasing(disk: DiskLog, index: number): void {
    if (index <= disk.barrierIndex) return;
    this.#reporter.violation(
      "W9",
      `${disk.host} releases its log up to ${String(index)}, but of what it applied only ${String(disk.barrierIndex)} survives a power cut`,
    );
  }

  #logKept(disk: DiskLog, initial: RaftInitialState, lost: (what: string) => never): void {
    const { logStart, entries, applied } = initial;
    const last = logStart.index + entries.length;
    const certain = disk.certainIndex;
    const term = disk.durable.termAt(certain);
    const found = certain === logStart.index ? logStart.term : entries[certain - logStart.index - 1]?.term;
    // A state takes the place of a log that contradicts it, with whatever that log held behind the state's index.
    const replaced = !disk.durable.covers(logStart.index, logStart.term);
    if (!replaced && certain > logStart.index && found !== term) {
      lost(
        `its log held ${String(certain)} of term ${String(term)} on disk, it finds ${found === undefined ? "nothing" : `term ${String(found)}`} there (log ${String(logStart.index)}..${String(last)})`,
      );
    }
    if (applied < disk.barrierIndex) {
      lost(
        `its store stood at ${String(disk.barrierIndex)} after a barrier, it stands at ${String(applied)}`,
      );
    }
    if (applied > last || (initial.hardState?.commit ?? 0) > last) {
      lost(`its log ends at ${String(last)}, below what is applied (${String(applied)}) or committed`);
    }
  }

  #hardState(disk: DiskLog, next: HardState, write: WalWrite): void {
    const before = disk.writtenHardState;
    const wrong = (what: string): never =>
      this.#reporter.violation("I5-hard-state", `${disk.host} (member ${String(disk.memberId)}): ${what}`);
    if (next.term < before.term) wrong(`term ${String(next.term)} after ${String(before.term)}`);
    if (next.term === before.term && before.vote !== 0 && next.vote !== before.vote) {
      wrong(`vote for ${String(next.vote)} after ${String(before.vote)} in term ${String(next.term)}`);
    }
    if (next.commit < before.commit) wrong(`commit ${String(next.commit)} after ${String(before.commit)}`);
    const lastWritten = write.entries.at(-1)?.index ?? write.snapshot?.index ?? disk.written.last;
    if (next.commit > lastWritten) {
      wrong(`commit ${String(next.commit)} beyond its log's end ${String(lastWritten)}`);
    }
  }

  /** What is committed stays in every log that has it. */
  #superseded(disk: DiskLog, { entries }: WalWrite): void {
    const { written, host } = disk;
    const first = entries[0];
    if (first === undefined || first.index > written.last) return;
    const to = Math.min(written.last, this.#ledger.highestCommit);
    for (let index: number = first.index; index <= to; index += 1) {
      const term = written.termAt(index);
      if (this.#ledger.committedTerm(index) !== term) return;
      if (entries[index - first.index]?.term === term) continue;
      this.#reporter.violation(
        "I3-cut",
        `${host} cuts its log from ${String(first.index)} on, and with it the committed entry ${String(index)} of term ${String(term)}`,
      );
    }
  }

  #sending(disk: DiskLog, message: Message): void {
    switch (message.kind) {
      case "append":
      case "heartbeat":
      case "timeout-now":
        if (message.term > disk.ledTerm) disk.ledTerm = message.term;
        break;
      case "append-response":
        this.#termIsDurable(disk, message.term, message.kind);
        if (!message.rejected && message.index > disk.durable.last && !hasMovedOn(disk, message.term)) {
          this.#reporter.violation(
            "I6-acknowledged",
            `${disk.host} acknowledges ${String(message.index)} in term ${String(message.term)}; its disk holds ${String(disk.durable.last)}`,
          );
        }
        break;
      case "vote-response":
        this.#termIsDurable(disk, message.term, message.kind);
        if (message.granted) this.#granted(disk, message.term, message.to);
        break;
      default:
        break;
    }
  }

  #termIsDurable(disk: DiskLog, term: number, kind: string): void {
    if (disk.durableHardState.term >= term) return;
    this.#reporter.violation(
      "I5-unsaved",
      `${disk.host} sends ${kind} of term ${String(term)}; its disk holds term ${String(disk.durableHardState.term)}`,
    );
  }

  #granted(disk: DiskLog, term: number, candidate: number): void {
    const earlier = disk.votes.get(term);
    if (earlier !== undefined && earlier !== candidate) {
      this.#reporter.violation(
        "I5-one-vote",
        `${disk.host} (member ${String(disk.memberId)}) votes for ${String(candidate)} in term ${String(term)} after it voted for ${String(earlier)}`,
      );
    }
    disk.votes.set(term, candidate);
    const saved = disk.durableHardState;
    if (saved.term > term || (saved.term === term && saved.vote === candidate)) return;
    this.#reporter.violation(
      "I5-unsaved",
      `${disk.host} grants its vote in term ${String(term)} to ${String(candidate)}; its disk holds a vote for ${String(saved.vote)} in term ${String(saved.term)}`,
    );
  }
}

/**
 * The disk is in a later term: its leader may have cut what an answer of the earlier term speaks of, even before it was
 * written. That answer is as harmless as one that was on its way when the entries were cut: the later leader's election
 * has already made a majority impossible for them.
 */
function hasMovedOn(disk: DiskLog, term: number): boolean {
  return disk.durableHardState.term > term;
}
