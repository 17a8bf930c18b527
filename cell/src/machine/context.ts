import type { Cause, LeaseId } from "@lockstep/gateway/coordinator";
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { StoreReader } from "../store/types.ts";
import { EMPTY } from "./bytes.ts";
import type { KeyStates } from "./key-states.ts";
import { keyValue } from "./key-states.ts";
import type { LeaseTable } from "./leases.ts";
import type { KeyRecord } from "./records.ts";
import type { RowSink } from "./sink.ts";
import type { MachineState, NamespaceState } from "./state.ts";
import type { LeaseChange, MachineEvent, RevisionEvents } from "./types.ts";
import type { Revision } from "@lockstep/gateway/coordinator";

/** What the commands of a batch work on. */
export interface ApplyContext {
  readonly state: MachineState;
  readonly sink: RowSink;
  readonly keys: KeyStates;
  readonly leases: LeaseTable;
  readonly reader: StoreReader;
  /** Absent: nobody wants them, so they are not made. */
  readonly events: RevisionEvents[] | undefined;
  readonly leaseChanges: LeaseChange[];
}

/**
 * The writes of one command: all at one revision, sub-numbered in operation order. The revision counter moves when
 * the first write happens, so a command that writes nothing leaves it alone (A1).
 */
export class RevisionWriter {
  readonly revision: number;
  private readonly context: ApplyContext;
  private readonly namespace: NamespaceState;
  private readonly cause: Cause;
  private sub = 0;
  private events: MachineEvent[] | undefined;

  constructor(context: ApplyContext, namespace: NamespaceState, cause: Cause) {
    this.context = context;
    this.namespace = namespace;
    this.cause = cause;
    this.revision = context.state.revision + 1;
    assert(this.revision < Number.MAX_SAFE_INTEGER, "revision < 2^53", { revision: this.revision });
  }

  get wrote(): boolean {
    return this.sub > 0;
  }

  /** What an answer reflects at this point of the command. */
  get reflected(): Revision {
    return (this.wrote ? this.revision : this.revision - 1) as Revision;
  }

  /** The lease must exist and have room, checked before: writes cannot fail half-way. */
  put(record: KeyRecord, key: Uint8Array, value: Uint8Array, leaseId: LeaseId): void {
    const { namespace } = this;
    const existed = record.status === "live";
    if (record.leaseId !== leaseId) {
      if (record.leaseId !== NO_LEASE) this.detach(record, key);
      if (leaseId !== NO_LEASE) this.attach(record, key, leaseId);
    }
    const previousRevision = existed ? record.modRevision : 0;
    const chained = existed || (record.modRevision > 0 && record.modRevision >= namespace.compactRevision);
    if (existed) namespace.superseded += record.size;
    else namespace.keys += 1;
    const createRevision = existed ? record.createRevision : this.revision;
    const version = existed ? record.version + 1 : 1;
    const size = this.context.sink.history(namespace.id, this.revision, this.sub, {
      deletion: false,
      cause: this.cause,
      previousRevision: chained ? record.modRevision : 0,
      previousSub: chained ? record.sub : 0,
      previousDeleted: chained && !existed,
      createRevision,
      version,
      leaseId,
      timeMs: this.context.state.timeMs,
      superseded: namespace.superseded,
      tombstones: namespace.tombstones,
      key,
      value,
    });
    if (!existed) this.context.keys.smallRanges.created(namespace.id, key);
    record.status = "live";
    record.createRevision = createRevision;
    record.version = version;
    record.leaseId = leaseId;
    record.pending = value;
    record.valueLength = -1;
    this.wroteRow(record, size);
    if (this.context.events === undefined) return;
    this.event({
      kind: "put",
      kv: keyValue(record, value, key),
      previousRevision,
      cause: this.cause,
    });
  }

  delete(record: KeyRecord): void {
    assert(record.status === "live", "only a live key is deleted");
    const { namespace } = this;
    const previousRevision = record.modRevision;
    const { key } = record;
    if (record.leaseId !== NO_LEASE) this.detach(record, key);
    namespace.superseded += record.size;
    namespace.keys -= 1;
    const size = this.context.sink.history(namespace.id, this.revision, this.sub, {
      deletion: true,
      cause: this.cause,
      previousRevision,
      previousSub: record.sub,
      previousDeleted: false,
      createRevision: this.revision,
      version: 0,
      leaseId: NO_LEASE,
      timeMs: this.context.state.timeMs,
      superseded: namespace.superseded,
      tombstones: namespace.tombstones,
      key,
      value: EMPTY,
    });
    namespace.tombstones += size;
    this.context.keys.smallRanges.deleted(namespace.id, key);
    record.status = "absent";
    record.createRevision = 0;
    record.version = 0;
    record.leaseId = NO_LEASE;
    record.pending = undefined;
    record.valueLength = -1;
    this.wroteRow(record, size);
    if (this.context.events === undefined) return;
    this.event({
      kind: "delete",
      kv: deletedKeyValue(key, this.revision),
      previousRevision,
      cause: this.cause,
    });
  }

  /** Publishes the writes, if there were any. @returns the revision that the command's answer carries. */
  finish(): Revision {
    if (this.wrote) {
      this.context.state.revision = this.revision;
      this.context.events?.push({
        namespaceId: this.namespace.id,
        revision: this.revision as Revision,
        events: this.events ?? [],
      });
    }
    return this.reflected;
  }

  private event(event: MachineEvent): void {
    if (this.events === undefined) this.events = [event];
    else this.events.push(event);
  }

  private wroteRow(record: KeyRecord, size: number): void {
    record.modRevision = this.revision;
    record.sub = this.sub;
    record.size = size;
    this.namespace.written += size;
    this.namespace.dirty = true;
    this.sub += 1;
    this.context.keys.touch(record);
  }

  /** @param key the record's */
  private attach(record: KeyRecord, key: Uint8Array, leaseId: LeaseId): void {
    this.context.leases.attach(this.namespace.id, leaseId, record, this.context.reader);
    this.context.sink.attach(this.namespace.id, leaseId, key);
  }

  private detach(record: KeyRecord, key: Uint8Array): void {
    this.context.leases.detach(this.namespace.id, record.leaseId, this.context.reader);
    this.context.sink.detach(this.namespace.id, record.leaseId, key);
  }
}

/** A deletion says only which key went, and when. */
export function deletedKeyValue(key: Uint8Array, revision: number): MachineEvent["kv"] {
  return {
    key,
    value: EMPTY,
    createRevision: 0 as Revision,
    modRevision: revision as Revision,
    version: 0,
    leaseId: NO_LEASE,
  };
}
