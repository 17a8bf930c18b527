/** Entries in, products out: the only place where commands meet state. */
import type { ClientId, Failure, Revision, WriteResult } from "@lockstep/gateway/coordinator";
import { assert, assertNever, InvariantError } from "../invariant.ts";
import type { StoreReader } from "../store/types.ts";
import type { ClientTable } from "./clients.ts";
import { decodeCommandBatch } from "./codec/commands.ts";
import { DecodeError } from "./codec/primitives.ts";
import { failureNumber } from "./codec/results.ts";
import { applyCompact, applyRetain } from "./compaction.ts";
import type { ApplyContext } from "./context.ts";
import { refusal } from "./failures.ts";
import type { KeyStates } from "./key-states.ts";
import { applyCheckpoint, applyExpire, applyGrant, applyRevoke } from "./lease-commands.ts";
import type { LeaseTable } from "./leases.ts";
import { applyCreateNamespace, applyDeleteNamespace } from "./namespaces.ts";
import type { PendingRows } from "./pending-rows.ts";
import { Prefetch } from "./prefetch.ts";
import type { KeyRecord } from "./records.ts";
import type { RowSink } from "./sink.ts";
import type { MachineState, NamespaceState } from "./state.ts";
import { FORMAT_VERSION_MAX, NEWER_FORMAT_VERSION } from "./state.ts";
import type { TokenTable } from "./tokens.ts";
import { applyDelete, applyPut, applyTxn } from "./txn.ts";
import type {
  Applied,
  AppliedEntry,
  ClientCommand,
  Command,
  CommandBatch,
  CommandOutcome,
  MachineEntry,
} from "./types.ts";
import { identityRefusal } from "./validate.ts";

export interface MachineParts {
  readonly state: MachineState;
  readonly sink: RowSink;
  readonly keys: KeyStates;
  readonly leases: LeaseTable;
  readonly requests: PendingRows;
  readonly clients: ClientTable;
  readonly tokens: TokenTable;
}

/** One apply. */
interface Run {
  readonly parts: MachineParts;
  readonly context: ApplyContext;
  /** For each command in order, what {@link Prefetch.command} returned; `next` is the present one. */
  readonly records: readonly (KeyRecord | undefined)[];
  next: number;
}

const INTERNAL: CommandOutcome = { ok: true, result: undefined, replayed: false };
/** Sweeps for silent clients and aged request ids: eight a idle bound, sooner when one found more than it may do. */
const SWEEPS_PER_IDLE_BOUND = 8;

export function applyEntries(
  parts: MachineParts,
  entries: readonly MachineEntry[],
  reader: StoreReader,
  wantEvents: boolean,
): Applied {
  const { state, sink, keys, leases } = parts;
  const events = wantEvents ? [] : undefined;
  const context: ApplyContext = { state, sink, keys, leases, reader, events, leaseChanges: [] };
  const batches = entries.map(decode);
  const prefetch = new Prefetch(keys, leases, state.revision);
  const records: (KeyRecord | undefined)[] = [];
  for (const batch of batches) {
    if (batch !== undefined) for (const command of batch.commands) records.push(prefetch.command(command));
  }
  prefetch.fetch(reader);
  const run: Run = { parts, context, records, next: 0 };
  const applied: AppliedEntry[] = [];
  for (const [i, entry] of entries.entries()) {
    assert(entry.index === state.appliedIndex + 1, "entries are applied in order, each once", {
      index: entry.index,
      applied: state.appliedIndex,
    });
    const batch = batches[i];
    const outcomes = batch === undefined ? [] : applyBatch(run, entry, batch);
    state.appliedIndex = entry.index;
    applied.push({ index: entry.index, outcomes });
  }
  keys.settle();
  leases.settle();
  parts.requests.settle();
  parts.clients.settle();
  sink.mutations.push(...state.rows());
  return {
    entries: applied,
    mutations: sink.take(),
    events: context.events ?? [],
    leaseChanges: context.leaseChanges,
  };
}

/** undefined: an empty entry, as a new leader's first one. */
function decode(entry: MachineEntry): CommandBatch | undefined {
  if (entry.data.length === 0) return undefined;
  try {
    return decodeCommandBatch(entry.data);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    throw new InvariantError(`entry ${entry.index} cannot be decoded by this version: ${error.message}`, {
      cause: error,
    });
  }
}

function applyBatch(run: Run, entry: MachineEntry, batch: CommandBatch): CommandOutcome[] {
  const { context } = run;
  const { state, sink, clients } = run.parts;
  sink.beginEntry(state.digest);
  if (batch.timeMs > state.timeMs) state.timeMs = batch.timeMs;
  sink.note(entry.index, state.timeMs);
  if (state.timeMs >= state.nextSweepMs) sweep(run.parts, context.reader);
  const outcomes: CommandOutcome[] = [];
  for (const command of batch.commands) {
    const outcome = applyCommand(run, entry, command);
    run.next += 1;
    if (outcome.ok) sink.note(0, state.revision);
    else sink.note(1 + failureNumber(outcome.failure.code), state.revision);
    outcomes.push(outcome);
  }
  clients.endEntry(entry.index);
  state.digest = sink.endEntry();
  return outcomes;
}

function sweep(parts: MachineParts, reader: StoreReader): void {
  const { state, clients, tokens } = parts;
  let more = false;
  for (const namespace of state.namespaces.values()) {
    if (clients.sweep(namespace, state, reader)) more = true;
    if (tokens.sweep(namespace, state, reader)) more = true;
  }
  const interval = Math.max(1, Math.ceil(state.settings.clientIdleMsMax / SWEEPS_PER_IDLE_BOUND));
  state.nextSweepMs = more ? state.timeMs : state.timeMs + interval;
}

function applyCommand(run: Run, entry: MachineEntry, command: Command): CommandOutcome {
  const { context } = run;
  switch (command.kind) {
    case "client":
      return applyClientCommand(run, command);
    case "expire":
      applyExpire(context, command, entry.term);
      return INTERNAL;
    case "checkpoint":
      applyCheckpoint(context, command, entry.term);
      return INTERNAL;
    case "retain":
      applyRetain(context, command);
      return INTERNAL;
    case "format-version":
      raiseFormatVersion(context, command.version);
      return INTERNAL;
    case "create-namespace":
      return internal(applyCreateNamespace(context, command));
    case "delete-namespace":
      return internal(applyDeleteNamespace(context, command));
    default:
      return assertNever(command);
  }
}

/** What a raised version allows is applied by members that know it only; another one stops here (R58, R60). */
function raiseFormatVersion(context: ApplyContext, version: number): void {
  assert(version <= FORMAT_VERSION_MAX, NEWER_FORMAT_VERSION, { version, known: FORMAT_VERSION_MAX });
  if (version > context.state.formatVersion) context.state.formatVersion = version;
}

function applyClientCommand(run: Run, command: ClientCommand): CommandOutcome {
  const { state } = run.context;
  const namespace = state.namespaces.get(command.namespaceId);
  if (namespace === undefined)
    return failed(refusal("namespace-not-found", "this cell has no such namespace"));
  if (command.epoch !== 0 && command.epoch !== namespace.epoch) {
    return failed(refusal("wrong-epoch", `the namespace's routing epoch is ${namespace.epoch}`));
  }
  const { identity } = command;
  const invalid = identityRefusal(identity, state.settings.limits);
  if (invalid !== undefined) return failed(invalid);
  switch (identity.kind) {
    case "none":
      return runOnce(run, namespace, command);
    case "client":
      return runForClient(run, namespace, command);
    case "token":
      return runForToken(run, namespace, command);
    default:
      return assertNever(identity);
  }
}

function runForClient(run: Run, namespace: NamespaceState, command: ClientCommand): CommandOutcome {
  const { parts, context } = run;
  const { identity, operation } = command;
  assert(identity.kind === "client", "the identity is a client's");
  const found = parts.clients.lookup(namespace, identity, operation, context.reader);
  if (found.kind === "replay") return found.outcome;
  if (found.kind === "expired") {
    const message = "the cell no longer remembers this request or its client; whether it ran is unknown";
    return failed({ code: "request-expired", outcome: "unknown", message });
  }
  const outcome = runOnce(run, namespace, command);
  parts.clients.remember(found.client, identity, { outcome, operation }, context.state);
  return outcome;
}

function runForToken(run: Run, namespace: NamespaceState, command: ClientCommand): CommandOutcome {
  const { parts, context } = run;
  const { identity, operation } = command;
  assert(identity.kind === "token", "the identity is a token");
  const { token } = identity;
  const remembered = parts.tokens.lookup(namespace, { token, operation }, context.state, context.reader);
  if (remembered !== undefined) return remembered;
  const outcome = runOnce(run, namespace, command);
  parts.tokens.remember(namespace, { token, operation, outcome }, context.state, context.reader);
  return outcome;
}

function runOnce(run: Run, namespace: NamespaceState, command: ClientCommand): CommandOutcome {
  const result = execute(run, namespace, command);
  return "code" in result ? failed(result) : { ok: true, result, replayed: false };
}

function execute(run: Run, namespace: NamespaceState, { operation }: ClientCommand): WriteResult | Failure {
  const { parts, context } = run;
  switch (operation.kind) {
    case "put":
      return applyPut(context, namespace, operation, run.records[run.next]);
    case "delete":
      return applyDelete(context, namespace, operation);
    case "txn":
      return applyTxn(context, namespace, operation);
    case "lease-grant":
      return applyGrant(context, namespace, operation);
    case "lease-revoke":
      return applyRevoke(context, namespace, operation.leaseId);
    case "compact":
      return applyCompact(context, namespace, operation);
    case "register-client":
      return registerClient(parts, context, namespace);
    default:
      return assertNever(operation);
  }
}

function registerClient(parts: MachineParts, context: ApplyContext, namespace: NamespaceState): WriteResult {
  return {
    kind: "register-client",
    clientId: parts.clients.register(namespace, context.state) as ClientId,
    revision: context.state.revision as Revision,
  };
}

function internal(refused: Failure | undefined): CommandOutcome {
  return refused === undefined ? INTERNAL : failed(refused);
}

function failed(failure: Failure): CommandOutcome {
  return { ok: false, failure };
}
