/**
 * Registered clients and the outcomes of their recent commands (architecture, section 5 `requests`): a retry gets the
 * first outcome, and nothing runs twice. One row for each client and entry.
 */
import type { RequestIdentity, WriteOperation } from "@lockstep/gateway/coordinator";
import { assert, InvariantError } from "../invariant.ts";
import type { StoreReader } from "../store/types.ts";
import { EMPTY } from "./bytes.ts";
import { ByteReader, ByteWriter, getUint64 } from "./codec/primitives.ts";
import { CLIENTS, IDLE, OUTCOMES, requestKey } from "./keys.ts";
import type { PendingRows } from "./pending-rows.ts";
import {
  asReplay,
  fingerprint,
  OTHER_OPERATION,
  recallOutcome,
  rememberOutcome,
  skipOutcome,
} from "./remembered.ts";
import type { RowSink } from "./sink.ts";
import type { MachineState, NamespaceState } from "./state.ts";
import type { CommandOutcome, MachineSettings } from "./types.ts";

export type ClientIdentity = Extract<RequestIdentity, { kind: "client" }>;

/**
 * A row of outcomes: the commands of one client in one entry. Its key ends in a slot number, which the next row takes
 * over when all of it is acknowledged: a client with one request at a time overwrites one row and deletes none.
 */
interface OutcomeRow {
  readonly slot: number;
  readonly key: Uint8Array;
  readonly index: number;
  /** The bytes while the store does not hold them yet. */
  pending: Uint8Array | undefined;
  sequences: readonly number[];
  readonly largest: number;
}

/** Outcomes of the entry being applied. */
interface Remembered {
  readonly sequence: number;
  readonly outcome: CommandOutcome;
  readonly operation: WriteOperation;
}

class Client {
  readonly namespaceId: number;
  readonly id: number;
  /** Sequences below it were acknowledged or evicted: never executed again. */
  floor = 0;
  largest = -1;
  /** Period of replicated time in which it was last heard of. */
  period = 0;
  /** In entry order. */
  rows: OutcomeRow[] = [];
  /** Remembered outcomes, counting some that are below the floor already. */
  countAtMost = 0;
  present: Remembered[] = [];

  constructor(namespaceId: number, id: number) {
    this.namespaceId = namespaceId;
    this.id = id;
  }
}

export type ClientLookup =
  | { readonly kind: "fresh"; readonly client: Client }
  | { readonly kind: "replay"; readonly outcome: CommandOutcome }
  | { readonly kind: "expired" };

/** A client is forgotten after this many whole periods of silence; a period is an eighth of the idle bound. */
const IDLE_PERIODS = 8;
const FORGET_CLIENTS_MAX = 64;
const FORGET_ROWS_MAX = 2048;
/** Clients held in memory between batches, in two generations. */
const GENERATION_CLIENTS_MAX = 8192;
const GENERATION_SEQUENCES_MAX = 500_000;
/** Far above what {@link MachineSettings.outcomesPerClientMax} lets a client have. */
const CLIENT_ROWS_MAX = 1_000_000;
const EXPIRED: ClientLookup = { kind: "expired" };

export class ClientTable {
  private young = new Map<number, Client>();
  private old = new Map<number, Client>();
  private youngSequences = 0;
  /** Clients with outcomes in the present entry. */
  private readonly touched: Client[] = [];
  /** Written by the present batch. */
  private readonly pending: OutcomeRow[] = [];
  private readonly rows: PendingRows;
  private readonly sink: RowSink;
  private readonly scratch = new ByteWriter(64 * 1024);

  constructor(rows: PendingRows, sink: RowSink) {
    this.rows = rows;
    this.sink = sink;
  }

  register(namespace: NamespaceState, state: MachineState): number {
    const client = new Client(namespace.id, state.nextClientId++);
    client.period = periodOf(state);
    this.writeClient(client);
    this.young.set(client.id, client);
    return client.id;
  }

  /** Before a command runs. The identity has been validated. */
  lookup(
    namespace: NamespaceState,
    identity: ClientIdentity,
    operation: WriteOperation,
    reader: StoreReader,
  ): ClientLookup {
    const client = this.find(namespace.id, identity.clientId, reader);
    if (client === undefined) return EXPIRED;
    const { sequence } = identity;
    if (sequence < client.floor) return EXPIRED;
    if (sequence > client.largest) return { kind: "fresh", client };
    const present = client.present.find((remembered) => remembered.sequence === sequence);
    if (present !== undefined) {
      const same = fingerprint(present.operation) === fingerprint(operation);
      return { kind: "replay", outcome: same ? asReplay(present.outcome) : OTHER_OPERATION };
    }
    const row = client.rows.find(
      (candidate) => candidate.largest >= sequence && candidate.sequences.includes(sequence),
    );
    if (row === undefined) return { kind: "fresh", client };
    return { kind: "replay", outcome: this.replay(row, { sequence, operation }, reader) };
  }

  /** After a command ran, for the identity that {@link ClientTable.lookup} called fresh. */
  remember(
    client: Client,
    identity: ClientIdentity,
    done: Omit<Remembered, "sequence">,
    state: MachineState,
  ): void {
    const { sequence, acknowledgedBelow } = identity;
    if (client.present.length === 0) this.touched.push(client);
    client.present.push({ sequence, outcome: done.outcome, operation: done.operation });
    if (sequence > client.largest) client.largest = sequence;
    if (acknowledgedBelow > client.floor) client.floor = acknowledgedBelow;
    client.countAtMost += 1;
    this.youngSequences += 1;
    if (client.countAtMost > state.settings.outcomesPerClientMax) evict(client, state.settings);
    const period = periodOf(state);
    if (period !== client.period) {
      this.rows.delete(idleKey(client));
      client.period = period;
      this.writeClient(client);
    }
  }

  /** Writes the entry's outcomes, one row a client, and drops rows that are acknowledged as a whole. */
  endEntry(index: number): void {
    for (const client of this.touched) {
      const kept: OutcomeRow[] = [];
      let reused: OutcomeRow | undefined;
      let slotEnd = 0;
      let count = client.present.length;
      for (const row of client.rows) {
        if (row.slot >= slotEnd) slotEnd = row.slot + 1;
        if (row.largest >= client.floor) {
          kept.push(row);
          count += row.sequences.length;
        } else if (reused === undefined) {
          reused = row;
        } else {
          this.sink.delete("requests", row.key);
        }
      }
      // The newest row always stays: it carries the floor.
      kept.push(
        this.writeOutcomes(client, index, reused ?? { slot: slotEnd, key: slotKey(client, slotEnd) }),
      );
      client.rows = kept;
      client.countAtMost = count;
      client.present = [];
    }
    this.touched.length = 0;
  }

  settle(): void {
    for (const row of this.pending) row.pending = undefined;
    this.pending.length = 0;
    if (this.young.size <= GENERATION_CLIENTS_MAX && this.youngSequences <= GENERATION_SEQUENCES_MAX) return;
    this.old = this.young;
    this.young = new Map();
    this.youngSequences = 0;
  }

  clear(): void {
    this.young = new Map();
    this.old = new Map();
  }

  /** Forgets silent clients, a bounded number. @returns whether more may be due. */
  sweep(namespace: NamespaceState, state: MachineState, reader: StoreReader): boolean {
    const before = periodOf(state) - IDLE_PERIODS;
    if (before <= 0) return false;
    const idle = this.rows.scan(
      {
        from: requestKey(namespace.id, IDLE, 0),
        to: requestKey(namespace.id, IDLE, before),
        limit: FORGET_CLIENTS_MAX,
      },
      reader,
    );
    let rowsLeft = FORGET_ROWS_MAX;
    for (const row of idle) {
      if (rowsLeft <= 0) return true;
      rowsLeft -= this.forget(namespace.id, getUint64(row.key, row.key.length - 8), reader);
    }
    return idle.length === FORGET_CLIENTS_MAX;
  }

  private forget(namespaceId: number, id: number, reader: StoreReader): number {
    const client = this.find(namespaceId, id, reader);
    assert(client !== undefined, "an idle row names a registered client", { id });
    for (const row of client.rows) this.sink.delete("requests", row.key);
    this.rows.delete(idleKey(client));
    this.rows.delete(requestKey(namespaceId, CLIENTS, id));
    this.young.delete(id);
    this.old.delete(id);
    return client.rows.length + 2;
  }

  private writeClient(client: Client): void {
    const writer = new ByteWriter(8);
    writer.varint(client.period);
    this.rows.put(requestKey(client.namespaceId, CLIENTS, client.id), writer.take());
    this.rows.put(idleKey(client), EMPTY);
  }

  private writeOutcomes(
    client: Client,
    index: number,
    { slot, key }: { readonly slot: number; readonly key: Uint8Array },
  ): OutcomeRow {
    const writer = this.scratch;
    writer.varint(index);
    writer.varint(client.floor);
    writer.varint(client.present.length);
    const sequences: number[] = [];
    let largest = 0;
    for (const { sequence, outcome, operation } of client.present) {
      writer.varint(sequence);
      rememberOutcome(writer, outcome, operation);
      sequences.push(sequence);
      if (sequence > largest) largest = sequence;
    }
    const pending = writer.take();
    this.sink.put("requests", key, pending);
    const row: OutcomeRow = { slot, key, index, pending, sequences, largest };
    this.pending.push(row);
    return row;
  }

  private replay(
    row: OutcomeRow,
    wanted: { readonly sequence: number; readonly operation: WriteOperation },
    reader: StoreReader,
  ): CommandOutcome {
    const value = row.pending ?? reader.get("requests", row.key);
    assert(value !== undefined, "a remembered outcome has its row", { index: row.index });
    const bytes = new ByteReader(value);
    bytes.varint();
    bytes.varint();
    for (let left = bytes.varint(); left > 0; left--) {
      if (bytes.varint() === wanted.sequence) return recallOutcome(bytes, wanted.operation);
      skipOutcome(bytes);
    }
    throw new InvariantError(`the row of entry ${row.index} holds the sequence ${wanted.sequence}`);
  }

  private find(namespaceId: number, id: number, reader: StoreReader): Client | undefined {
    let client = this.young.get(id);
    if (client === undefined) {
      client = this.old.get(id) ?? this.load(namespaceId, id, reader);
      if (client === undefined) return undefined;
      this.young.set(id, client);
    }
    return client.namespaceId === namespaceId ? client : undefined;
  }

  private load(namespaceId: number, id: number, reader: StoreReader): Client | undefined {
    const own = this.rows.get(requestKey(namespaceId, CLIENTS, id), reader);
    if (own === undefined) return undefined;
    const client = new Client(namespaceId, id);
    client.period = new ByteReader(own).varint();
    // The batch's own changes cannot matter: whoever it touched is in memory until it is settled.
    const found = reader.scan("requests", {
      from: requestKey(namespaceId, OUTCOMES, id),
      to: requestKey(namespaceId, OUTCOMES, id + 1),
      limit: CLIENT_ROWS_MAX,
    });
    for (const row of found) loadOutcomes(client, row.key, row.value);
    client.rows.sort((a, b) => a.index - b.index);
    this.youngSequences += client.countAtMost;
    return client;
  }
}

function loadOutcomes(client: Client, key: Uint8Array, value: Uint8Array): void {
  const reader = new ByteReader(value);
  const index = reader.varint();
  client.floor = Math.max(client.floor, reader.varint());
  const sequences: number[] = [];
  let largest = 0;
  for (let left = reader.varint(); left > 0; left--) {
    const sequence = reader.varint();
    skipOutcome(reader);
    sequences.push(sequence);
    if (sequence > largest) largest = sequence;
  }
  const slot = getUint64(key, key.length - 8);
  client.rows.push({ slot, key, index, pending: undefined, sequences, largest });
  client.countAtMost += sequences.length;
  if (largest > client.largest) client.largest = largest;
}

function slotKey(client: Client, slot: number): Uint8Array {
  return requestKey(client.namespaceId, OUTCOMES, client.id, slot);
}

function idleKey(client: Client): Uint8Array {
  return requestKey(client.namespaceId, IDLE, client.period, client.id);
}

function periodOf(state: MachineState): number {
  return Math.floor(state.timeMs / Math.max(1, Math.ceil(state.settings.clientIdleMsMax / IDLE_PERIODS)));
}

/**
 * Over the bound, the floor rises until three quarters are left, so that a client that never acknowledges does not
 * pay for it at every command. Depends on the remembered sequences only, never on what memory happens to hold.
 */
function evict(client: Client, settings: MachineSettings): void {
  const remembered: number[] = [];
  for (const row of client.rows) {
    row.sequences = row.sequences.filter((sequence) => sequence >= client.floor);
    remembered.push(...row.sequences);
  }
  for (const { sequence } of client.present) if (sequence >= client.floor) remembered.push(sequence);
  client.countAtMost = remembered.length;
  if (remembered.length <= settings.outcomesPerClientMax) return;
  remembered.sort((a, b) => a - b);
  const keep = Math.max(1, Math.floor((settings.outcomesPerClientMax * 3) / 4));
  const lowestKept = remembered[remembered.length - keep];
  assert(lowestKept !== undefined, "eviction keeps at least one outcome");
  client.floor = lowestKept;
}
