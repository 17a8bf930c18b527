/** One member's machine over a memory store, driven command by command. For tests. */
import { crc32 } from "node:zlib";
import { NO_IDENTITY } from "@lockstep/gateway/coordinator";
import type {
  ClientId,
  Failure,
  LeaseId,
  RangeOperation,
  RangeResult,
  RequestIdentity,
  Revision,
  TxnCommand,
  WriteOperation,
  WriteResult,
} from "@lockstep/gateway/coordinator";
import type { LogIndex, Term } from "../../raft/types.ts";
import { openMemoryStore } from "../../store/memory-store.ts";
import type { Store } from "../../store/types.ts";
import { createCommandEncoder, createMachine } from "../index.ts";
import type { LoadableMachine, MachineOptions } from "../index.ts";
import type { Applied, Command, CommandOutcome, LeaseChange, MachineEntry, RowMutation } from "../types.ts";
import type { RevisionEvents } from "../types.ts";

const text = new TextEncoder();

export function bytes(value: string): Uint8Array {
  return text.encode(value);
}

export function string(value: Uint8Array): string {
  return new TextDecoder("latin1").decode(value);
}

export function lease(id: number | string): LeaseId {
  return String(id) as LeaseId;
}

export function revision(value: number): Revision {
  return value as Revision;
}

export function client(id: number, sequence: number, acknowledgedBelow = 0): RequestIdentity {
  return { kind: "client", clientId: id as ClientId, sequence, acknowledgedBelow };
}

export function put(
  key: string,
  value = "v",
  more: Partial<Omit<Extract<WriteOperation, { kind: "put" }>, "kind" | "key" | "value">> = {},
): Extract<WriteOperation, { kind: "put" }> {
  return { kind: "put", key: bytes(key), value: bytes(value), ...more };
}

/** `end` absent: the single key. */
export function remove(
  key: string,
  end?: string,
  returnPrevious = false,
): Extract<WriteOperation, { kind: "delete" }> {
  const range = end === undefined ? { key: bytes(key) } : { key: bytes(key), rangeEnd: bytes(end) };
  return returnPrevious ? { kind: "delete", range, returnPrevious } : { kind: "delete", range };
}

export function get(
  key: string,
  end?: string,
  more: Partial<Omit<RangeOperation, "kind" | "range">> = {},
): RangeOperation {
  const range = end === undefined ? { key: bytes(key) } : { key: bytes(key), rangeEnd: bytes(end) };
  return { kind: "range", range, ...more };
}

export function txn(parts: Partial<Omit<TxnCommand, "kind">>): TxnCommand {
  return { kind: "txn", compares: [], success: [], failure: [], ...parts };
}

export class Member {
  readonly store: Store;
  machine: LoadableMachine;
  readonly options: MachineOptions;
  readonly log: MachineEntry[] = [];
  readonly events: RevisionEvents[] = [];
  readonly leaseChanges: LeaseChange[] = [];
  timeMs = 1_000_000;
  term = 1 as Term;

  constructor(options: Partial<MachineOptions> = {}, store: Store = openMemoryStore()) {
    this.options = { crc32, ...options };
    this.store = store;
    this.machine = createMachine(this.options);
    this.write(this.machine.bootstrap());
  }

  /** Commands as one entry, applied as a batch of its own. */
  entry(commands: readonly Command[]): Applied {
    const entry = this.encode(commands);
    return this.apply([entry]);
  }

  encode(commands: readonly Command[]): MachineEntry {
    const encoder = createCommandEncoder();
    for (const command of commands) encoder.add(command);
    const index = (this.machine.appliedIndex + 1) as LogIndex;
    return { index, term: this.term, data: encoder.finish(this.timeMs) };
  }

  apply(entries: readonly MachineEntry[]): Applied {
    const applied = this.machine.apply(entries, this.store);
    this.write(applied.mutations);
    this.log.push(...entries);
    this.events.push(...applied.events);
    this.leaseChanges.push(...applied.leaseChanges);
    return applied;
  }

  /** Client operations as the commands of one entry. */
  together(
    operations: readonly WriteOperation[],
    identity: RequestIdentity = NO_IDENTITY,
  ): readonly CommandOutcome[] {
    const commands = operations.map((operation) => command(operation, identity));
    return this.entry(commands).entries[0]!.outcomes;
  }

  outcome(operation: WriteOperation, identity: RequestIdentity = NO_IDENTITY): CommandOutcome {
    return this.together([operation], identity)[0]!;
  }

  do<K extends WriteOperation["kind"]>(
    operation: Extract<WriteOperation, { kind: K }>,
    identity: RequestIdentity = NO_IDENTITY,
  ): Extract<WriteResult, { kind: K }> {
    const outcome = this.outcome(operation, identity);
    if (!outcome.ok) throw new Error(`refused: ${outcome.failure.code}: ${outcome.failure.message}`);
    return outcome.result as Extract<WriteResult, { kind: K }>;
  }

  refused(operation: WriteOperation, identity: RequestIdentity = NO_IDENTITY): Failure {
    const outcome = this.outcome(operation, identity);
    if (outcome.ok) throw new Error("it was not refused");
    return outcome.failure;
  }

  range(operation: RangeOperation, namespaceId = 1): RangeResult {
    const result = this.machine.range(namespaceId, operation, this.store);
    if ("code" in result) throw new Error(`refused: ${result.code}`);
    return result;
  }

  rangeRefused(operation: RangeOperation): Failure {
    const result = this.machine.range(1, operation, this.store);
    if (!("code" in result)) throw new Error("it was not refused");
    return result;
  }

  register(): ClientId {
    return this.do({ kind: "register-client" }).clientId;
  }

  /** A new process over the same store. */
  restart(): void {
    this.machine = createMachine(this.options);
    this.machine.load(this.store);
  }

  compactPhysically(rowsMax = 3): void {
    for (let done = false; !done;) {
      const slice = this.machine.compactSlice(this.store, rowsMax);
      this.write(slice.mutations);
      done = slice.done;
    }
  }

  write(mutations: readonly RowMutation[]): void {
    this.store.write((batch) => {
      for (const { keyspace, key, value } of mutations) {
        if (value === undefined) batch.delete(keyspace, key);
        else batch.put(keyspace, key, value);
      }
    });
  }
}

export function command(operation: WriteOperation, identity: RequestIdentity = NO_IDENTITY): Command {
  return { kind: "client", namespaceId: 1, epoch: 0, identity, operation };
}
