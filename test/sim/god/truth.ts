/** The one true history: a machine of its own, fed with each committed entry once, and plain maps of what it did. */
import type { Membership } from "../../../cell/src/machine/membership.ts";
import type {
  Applied,
  CommandOutcome,
  LeaseChange,
  RevisionEvents,
} from "../../../cell/src/machine/types.ts";
import type { Entry } from "../../../cell/src/raft/types.ts";
import type { StoreReader } from "../../../cell/src/store/types.ts";
import type { Reporter, Scheduler, TimeUs, TrueRevision, TrueState, Truth } from "../contract.ts";
import { Shadow } from "./shadow.ts";
import { Timeline } from "./timeline.ts";
import { Twin } from "./twin.ts";

/** `default`. */
const NAMESPACE_ID = 1;
const FIRST_REVISION = 1;
/** Some milliseconds of work in each history. */
const TWIN_CHANGES_MAX = 60;

/** What is remembered of one entry. */
export interface TrueEntry {
  readonly index: number;
  readonly term: number;
  readonly kind: Entry["kind"];
  /** The machine's digest after it. */
  readonly digest: number;
  readonly revision: number;
  /** One for each command. */
  readonly outcomes: readonly CommandOutcome[];
  /** When the first member was handed it as committed. */
  readonly atUs: TimeUs;
}

/** A lease, for as long as the history lasts. */
export interface TrueLease {
  readonly leaseId: string;
  readonly ttlMs: number;
  readonly grantedIndex: number;
  readonly grantedAtUs: TimeUs;
  readonly end?: { readonly cause: string; readonly index: number; readonly atUs: TimeUs };
}

/** An accepted change of the membership. */
export interface TrueChange {
  readonly index: number;
  readonly before: Membership;
  readonly after: Membership;
}

interface Origin {
  readonly store: StoreReader;
  readonly membership: Membership;
}

export class CellTruth implements Truth {
  readonly #reporter: Reporter;
  readonly #scheduler: Pick<Scheduler, "nowUs">;
  readonly #entries = new Map<number, TrueEntry>();
  readonly #leases = new Map<string, TrueLease>();
  readonly #memberships = new Map<number, Membership>();
  readonly #revisionListeners: ((revision: TrueRevision) => void)[] = [];
  readonly #leaseEndListeners: ((leaseId: string, cause: string, atUs: TimeUs) => void)[] = [];
  readonly #entryListeners: ((entry: Entry, remembered: TrueEntry) => void)[] = [];
  readonly #changeListeners: ((change: TrueChange) => void)[] = [];
  #shadow: Shadow | undefined;
  #timeline = new Timeline(1);
  #twin: Twin;
  #firstIndex = 0;

  /** @param twinChangesMax for how many changes of keys the machine's dumb twin runs beside; 0: not at all */
  constructor(
    reporter: Reporter,
    scheduler: Pick<Scheduler, "nowUs">,
    twinChangesMax: number = TWIN_CHANGES_MAX,
  ) {
    this.#reporter = reporter;
    this.#scheduler = scheduler;
    this.#twin = new Twin(twinChangesMax);
  }

  get begun(): boolean {
    return this.#shadow !== undefined;
  }

  /** Begins with the state of the first member, before anything is applied after it. */
  begin(origin: Origin): void {
    const shadow = new Shadow(origin.store, origin.membership);
    this.#shadow = shadow;
    this.#timeline = new Timeline(shadow.machine.revision);
    this.#firstIndex = shadow.machine.appliedIndex;
    this.#memberships.set(origin.membership.configurationIndex, origin.membership);
    // The twin knows nothing of what was before.
    if (shadow.machine.revision > FIRST_REVISION) this.#twin = new Twin(0);
    this.#remember({ index: this.#firstIndex, term: 0, kind: "normal" }, []);
  }

  get revision(): number {
    return this.#shadow?.machine.revision ?? 0;
  }

  /** History below it was given up by the cell (the truth still has it). 0: nothing. */
  get compactRevision(): number {
    return this.#shadow?.machine.namespace(NAMESPACE_ID)?.compactRevision ?? 0;
  }

  /** The newest entry that any member was handed. */
  get appliedIndex(): number {
    return this.#shadow?.machine.appliedIndex ?? 0;
  }

  /** Where it began: nothing is known of entries up to it. */
  get firstIndex(): number {
    return this.#firstIndex;
  }

  get membership(): Membership | undefined {
    return this.#shadow?.membership;
  }

  get shadow(): Shadow | undefined {
    return this.#shadow;
  }

  at(revision: number): TrueRevision | undefined {
    return this.#timeline.at(revision);
  }

  stateAt(key: string, revision: number): TrueState | undefined {
    return this.#timeline.stateAt(key, revision);
  }

  rangeAt(prefix: string, revision: number): readonly TrueState[] {
    return this.#timeline.rangeAt(prefix, revision);
  }

  entry(index: number): TrueEntry | undefined {
    return this.#entries.get(index);
  }

  lease(leaseId: string): TrueLease | undefined {
    return this.#leases.get(leaseId);
  }

  /** The membership that took effect at a configuration index. */
  membershipAt(configurationIndex: number): Membership | undefined {
    return this.#memberships.get(configurationIndex);
  }

  onRevision(listener: (revision: TrueRevision) => void): void {
    this.#revisionListeners.push(listener);
  }

  onLeaseEnd(listener: (leaseId: string, cause: string, atUs: TimeUs) => void): void {
    this.#leaseEndListeners.push(listener);
  }

  /** Called for every entry, after everything it did is told. */
  onEntry(listener: (entry: Entry, remembered: TrueEntry) => void): void {
    this.#entryListeners.push(listener);
  }

  onChange(listener: (change: TrueChange) => void): void {
    this.#changeListeners.push(listener);
  }

  /** An entry that some member was handed as committed. Entries that are known already are passed over. */
  feed(entry: Entry): void {
    const shadow = this.#shadow;
    if (shadow === undefined || entry.index <= shadow.machine.appliedIndex) return;
    const { index } = entry;
    if (index !== shadow.machine.appliedIndex + 1) {
      this.#reporter.violation(
        "I2-gap",
        `a member was handed entry ${String(index)} as committed, but nobody was handed what follows ${String(shadow.machine.appliedIndex)}`,
      );
    }
    const before = shadow.machine.revision;
    const step = shadow.apply(entry);
    const outcomes = step.applied.entries[0]?.outcomes ?? [];
    const remembered = this.#remember(entry, outcomes);
    this.#tell(step.applied, before, remembered);
    this.#compareTwin(entry, remembered, step.applied.events);
    if (step.membership !== undefined) {
      const change = { index, ...step.membership };
      this.#memberships.set(index, change.after);
      for (const listener of this.#changeListeners) listener(change);
    }
    for (const listener of this.#entryListeners) listener(entry, remembered);
  }

  #compareTwin(entry: Entry, remembered: TrueEntry, events: readonly RevisionEvents[]): void {
    if (this.#twin.ended || entry.kind !== "normal") return;
    const { index, term, data } = entry;
    const { outcomes, revision } = remembered;
    const difference = this.#twin.apply({ index, term, data, outcomes, events, revision });
    if (difference === undefined) return;
    this.#reporter.violation("truth-twin", `entry ${String(index)}: ${difference}`);
  }

  #remember(
    entry: { readonly index: number; readonly term: number; readonly kind: Entry["kind"] },
    outcomes: readonly CommandOutcome[],
  ): TrueEntry {
    const remembered: TrueEntry = {
      index: entry.index,
      term: entry.term,
      kind: entry.kind,
      digest: this.#shadow?.machine.digest.hash ?? 0,
      revision: this.revision,
      outcomes,
      atUs: this.#scheduler.nowUs,
    };
    this.#entries.set(entry.index, remembered);
    return remembered;
  }

  #tell(applied: Applied, before: number, entry: TrueEntry): void {
    this.#checkRevisions(applied.events, before, entry);
    const added: TrueRevision[] = [];
    for (const events of applied.events) {
      if (events.namespaceId === NAMESPACE_ID) added.push(this.#timeline.add(events, entry.atUs));
    }
    const complaint = this.#timeline.takeComplaint();
    if (complaint !== undefined) {
      this.#reporter.violation("truth-timeline", `entry ${String(entry.index)}: ${complaint}`);
    }
    for (const revision of added) for (const listener of this.#revisionListeners) listener(revision);
    for (const change of applied.leaseChanges) {
      if (change.namespaceId === NAMESPACE_ID) this.#leaseChanged(change, entry);
    }
  }

  /** The cell's revisions follow each other, whatever namespace they belong to. */
  #checkRevisions(events: readonly RevisionEvents[], before: number, entry: TrueEntry): void {
    let expected = before;
    for (const { revision } of events) {
      expected += 1;
      if (revision !== expected) {
        this.#reporter.violation(
          "truth-revisions",
          `entry ${String(entry.index)}: revision ${String(revision)} where ${String(expected)} is due`,
        );
      }
    }
    if (entry.revision === expected) return;
    this.#reporter.violation(
      "truth-revisions",
      `entry ${String(entry.index)}: its events lead to revision ${String(expected)}, the machine stands at ${String(entry.revision)}`,
    );
  }

  #leaseChanged(change: LeaseChange, entry: TrueEntry): void {
    const { leaseId } = change;
    if (change.kind === "granted") {
      this.#reporter.count("leases granted");
      this.#leases.set(leaseId, {
        leaseId,
        ttlMs: change.ttlMs,
        grantedIndex: entry.index,
        grantedAtUs: entry.atUs,
      });
      return;
    }
    if (change.kind === "checkpointed") {
      this.#reporter.count("lease checkpoints");
      return;
    }
    this.#reporter.count(change.cause === "lease-expired" ? "lease expiries" : "leases revoked");
    const lease = this.#leases.get(leaseId);
    if (lease?.end !== undefined) {
      this.#reporter.violation("I10-once", `lease ${leaseId} ends a second time at ${String(entry.index)}`);
    }
    // A later command of the same entry may have granted the id anew and attached keys to it.
    const left = this.#timeline
      .attachedTo(leaseId)
      .filter((key) => (this.stateAt(key, this.revision)?.modRevision ?? 0) <= change.revision);
    if (left.length > 0) {
      this.#reporter.violation(
        "I10-atomic",
        `lease ${leaseId} ended at ${String(entry.index)} and left ${JSON.stringify(left)}`,
      );
    }
    const end = { cause: change.cause, index: entry.index, atUs: entry.atUs };
    if (lease !== undefined) this.#leases.set(leaseId, { ...lease, end });
    for (const listener of this.#leaseEndListeners) listener(leaseId, change.cause, entry.atUs);
  }
}
