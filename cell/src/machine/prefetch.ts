/** One look-up for everything that a batch's commands name: keys, values where they are asked for, leases. */
import type { LeaseId, WriteOperation } from "@lockstep/gateway/coordinator";
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import type { StoreReader } from "../store/types.ts";
import { sequentialKey } from "./bytes.ts";
import type { KeyStates } from "./key-states.ts";
import type { LeaseTable } from "./leases.ts";
import type { KeyRecord } from "./records.ts";
import type { Command } from "./types.ts";

export class Prefetch {
  private readonly keys: KeyStates;
  private readonly leases: LeaseTable;
  private readonly unknown: KeyRecord[] = [];
  private readonly wantingValue: KeyRecord[] = [];
  private readonly wantedLeases: { readonly namespaceId: number; readonly leaseId: LeaseId }[] = [];
  private readonly seen = new Set<KeyRecord>();
  /** What the present command's revision will be if every write before it finds something to do. */
  private revision: number;

  /** @param revision the state's, before the batch */
  constructor(keys: KeyStates, leases: LeaseTable, revision: number) {
    this.keys = keys;
    this.leases = leases;
    this.revision = revision;
  }

  /** @returns the record of a plain put, so that applying it needs no second look-up. */
  command(command: Command): KeyRecord | undefined {
    switch (command.kind) {
      case "client":
        if (isWrite(command.operation)) this.revision += 1;
        return this.operation(command.namespaceId, command.operation);
      case "expire":
        for (const leaseId of command.leaseIds) this.lease(command.namespaceId, leaseId);
        return undefined;
      case "checkpoint":
        for (const { leaseId } of command.leases) this.lease(command.namespaceId, leaseId);
        return undefined;
      case "retain":
      case "format-version":
      case "create-namespace":
      case "delete-namespace":
        return undefined;
    }
  }

  fetch(reader: StoreReader): void {
    if (this.unknown.length > 0) this.keys.load(this.unknown, reader);
    if (this.wantingValue.length > 0) this.keys.loadValues(this.wantingValue, reader);
    if (this.wantedLeases.length > 0) this.leases.prefetch(this.wantedLeases, reader);
  }

  private operation(namespaceId: number, operation: WriteOperation): KeyRecord | undefined {
    switch (operation.kind) {
      case "put":
        if (operation.leaseId !== undefined) this.lease(namespaceId, operation.leaseId);
        if (operation.sequential === true) {
          // Its key ends in its revision. A guess that fails costs a look-up.
          this.key(namespaceId, sequentialKey(operation.key, this.revision), false);
          return undefined;
        }
        return this.key(
          namespaceId,
          operation.key,
          operation.returnPrevious === true || operation.keep !== undefined,
        );
      case "delete":
        if (operation.range.rangeEnd === undefined) {
          this.key(namespaceId, operation.range.key, operation.returnPrevious === true);
        }
        return undefined;
      case "txn":
        for (const { key, rangeEnd, target } of operation.compares) {
          if (rangeEnd === undefined) this.key(namespaceId, key, target === "value");
        }
        this.branch(namespaceId, operation.success);
        this.branch(namespaceId, operation.failure);
        return undefined;
      case "lease-grant":
      case "lease-revoke":
        if (operation.leaseId !== undefined) this.lease(namespaceId, operation.leaseId);
        return undefined;
      case "compact":
      case "register-client":
        return undefined;
    }
  }

  private branch(namespaceId: number, operations: Extract<WriteOperation, { kind: "txn" }>["success"]): void {
    for (const operation of operations) {
      if (operation.kind !== "range") this.operation(namespaceId, operation);
      else if (operation.range.rangeEnd === undefined) this.key(namespaceId, operation.range.key, true);
    }
  }

  private key(namespaceId: number, key: Uint8Array, value: boolean): KeyRecord {
    const record = this.keys.cache.obtain(namespaceId, key);
    if (record.status === "unknown" && !this.seen.has(record)) {
      this.seen.add(record);
      this.unknown.push(record);
    }
    if (value) this.wantingValue.push(record);
    return record;
  }

  private lease(namespaceId: number, leaseId: LeaseId): void {
    if (leaseId !== NO_LEASE) this.wantedLeases.push({ namespaceId, leaseId });
  }
}

function isWrite({ kind }: WriteOperation): boolean {
  return kind === "put" || kind === "delete" || kind === "txn";
}
