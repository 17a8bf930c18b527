/**
 * Namespaces come and go. Replicated: from the command on, a deleted one is unknown and its counters are gone. Local, in
 * slices: its rows are deleted. Its id is never given again, so what is left of it is in nobody's way meanwhile.
 */
import type { Failure } from "@lockstep/gateway/coordinator";
import type { Keyspace, StoreReader } from "../store/types.ts";
import { keyAfter } from "./bytes.ts";
import type { ApplyContext } from "./context.ts";
import { refusal } from "./failures.ts";
import { META_REMOVAL, metaKey, namespaceKey } from "./keys.ts";
import type { MachineState, NamespaceRemoval } from "./state.ts";
import type { CreateNamespaceCommand, DeleteNamespaceCommand, RowMutation } from "./types.ts";

/** The one that every cell has from its beginning to its end. */
export const DEFAULT_NAMESPACE = "default";

/** Digest notes. */
const CREATED = 5;
const DELETED = 6;

const LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
const NAME = new RegExp(`^${LABEL}(?:\\.${LABEL})?$`);
const UID = /^[A-Za-z0-9._-]{1,64}$/;

const KEYSPACES: readonly Keyspace[] = ["index", "history", "lease-keys", "leases", "requests"];

/** @returns the refusal; undefined: it exists, made by this command or by an equal one before. */
export function applyCreateNamespace(
  { state, sink }: ApplyContext,
  { name, uid }: CreateNamespaceCommand,
): Failure | undefined {
  const { limits, namespacesMax } = state.settings;
  if (name.length > limits.namespaceBytesMax || !NAME.test(name)) {
    return refusal(
      "invalid-argument",
      "a namespace is NAME or NAME.KUBERNETES-NAMESPACE: lower-case letters, digits and dashes, at most 63 each and 253 together",
    );
  }
  if (!UID.test(uid)) {
    return refusal("invalid-argument", "the uid is not 1 to 64 letters, digits, '.', '_' and '-'");
  }
  const present = state.namespaceByName(name);
  if (present !== undefined) return present.uid === uid ? undefined : ofAnother(name);
  if (state.namespaces.size >= namespacesMax) {
    return refusal(
      "too-many-namespaces",
      `the cell holds ${state.namespaces.size} namespaces, its maximum is ${namespacesMax}`,
    );
  }
  sink.note(CREATED, state.createNamespace(name, uid).id);
  return undefined;
}

/** @returns the refusal (also when it is not there); undefined: it is deleted. */
export function applyDeleteNamespace(
  { state, sink }: ApplyContext,
  { name, uid }: DeleteNamespaceCommand,
): Failure | undefined {
  if (name === DEFAULT_NAMESPACE) {
    return refusal("invalid-argument", `the namespace ${DEFAULT_NAMESPACE} cannot be deleted`);
  }
  const present = state.namespaceByName(name);
  if (present === undefined) return refusal("namespace-not-found", `this cell has no namespace ${name}`);
  if (present.uid !== uid) return ofAnother(name);
  state.deleteNamespace(present);
  sink.note(DELETED, present.id);
  return undefined;
}

function ofAnother(name: string): Failure {
  return refusal("namespace-exists", `the namespace ${name} exists with another uid`);
}

/** One slice of deleting the rows of deleted namespaces; undefined: nothing is left of any. */
export function removalSlice(
  state: MachineState,
  reader: StoreReader,
  rowsMax: number,
): readonly RowMutation[] | undefined {
  const [first] = state.removals.values();
  if (first === undefined) return undefined;
  const found = nextRows(first, reader, rowsMax);
  if (found !== undefined) return found;
  state.removals.delete(first.id);
  return [{ keyspace: "meta", key: metaKey(first.id, META_REMOVAL), value: undefined }];
}

function nextRows(
  removal: NamespaceRemoval,
  reader: StoreReader,
  rowsMax: number,
): readonly RowMutation[] | undefined {
  const to = namespaceKey(removal.id + 1);
  for (;;) {
    const keyspace = KEYSPACES[removal.keyspace];
    if (keyspace === undefined) return undefined;
    // Where the last slice ended: to look again from the beginning would walk over all that it deleted.
    const from = removal.from ?? namespaceKey(removal.id);
    const rows = reader.scan(keyspace, { from, to, limit: Math.max(1, rowsMax), keysOnly: true });
    const last = rows.at(-1);
    if (last !== undefined) {
      removal.from = keyAfter(last.key);
      return rows.map(({ key }) => ({ keyspace, key, value: undefined }));
    }
    removal.keyspace += 1;
    removal.from = undefined;
  }
}
