/** Free-form request ids (HTTP): remembered for a while and up to a number, oldest forgotten first. */
import type { WriteOperation } from "@lockstep/gateway/coordinator";
import type { StoreReader } from "../store/types.ts";
import { ByteReader, ByteWriter } from "./codec/primitives.ts";
import { requestKey, TOKEN_ORDER, tokenKey } from "./keys.ts";
import type { PendingRows } from "./pending-rows.ts";
import { recallOutcome, rememberOutcome } from "./remembered.ts";
import type { MachineState, NamespaceState } from "./state.ts";
import { encodeText } from "./text.ts";
import type { CommandOutcome } from "./types.ts";

/** Looked at for each remembered one: more than one, so that the table shrinks when it is over its bounds. */
const FORGET_PER_REQUEST = 4;
const FORGET_PER_SWEEP = 1024;

/**
 * Two rows each: the token with its order number, time and outcome; the order number with the token. Order numbers
 * are consecutive, so the oldest is found without walking over what is gone.
 */
export class TokenTable {
  private readonly rows: PendingRows;

  constructor(rows: PendingRows) {
    this.rows = rows;
  }

  /** The remembered outcome; an aged one is as good as none. */
  lookup(
    namespace: NamespaceState,
    request: { readonly token: string; readonly operation: WriteOperation },
    state: MachineState,
    reader: StoreReader,
  ): CommandOutcome | undefined {
    const row = this.rows.get(tokenKey(namespace.id, encodeText(request.token)), reader);
    if (row === undefined) return undefined;
    const bytes = new ByteReader(row);
    const order = bytes.varint();
    const timeMs = bytes.varint();
    if (order < namespace.tokenFirst || aged(timeMs, state)) return undefined;
    return recallOutcome(bytes, request.operation);
  }

  remember(
    namespace: NamespaceState,
    request: { readonly token: string; readonly operation: WriteOperation; readonly outcome: CommandOutcome },
    state: MachineState,
    reader: StoreReader,
  ): void {
    const token = encodeText(request.token);
    const order = namespace.tokenNext++;
    namespace.dirty = true;
    const writer = new ByteWriter(64);
    writer.varint(order);
    writer.varint(state.timeMs);
    rememberOutcome(writer, request.outcome, request.operation);
    this.rows.put(tokenKey(namespace.id, token), writer.take());
    const orderWriter = new ByteWriter(64);
    orderWriter.varint(state.timeMs);
    orderWriter.bytes(token);
    this.rows.put(requestKey(namespace.id, TOKEN_ORDER, order), orderWriter.take());
    this.forget(namespace, FORGET_PER_REQUEST, state, reader);
  }

  /** @returns whether more are due. */
  sweep(namespace: NamespaceState, state: MachineState, reader: StoreReader): boolean {
    return this.forget(namespace, FORGET_PER_SWEEP, state, reader) === FORGET_PER_SWEEP;
  }

  private forget(namespace: NamespaceState, max: number, state: MachineState, reader: StoreReader): number {
    let forgotten = 0;
    while (forgotten < max && namespace.tokenFirst < namespace.tokenNext) {
      const key = requestKey(namespace.id, TOKEN_ORDER, namespace.tokenFirst);
      const over = namespace.tokenNext - namespace.tokenFirst > state.settings.tokensMax;
      const row = this.rows.get(key, reader);
      if (row !== undefined) {
        const bytes = new ByteReader(row);
        if (!over && !aged(bytes.varint(), state)) break;
        this.drop(namespace, { key, row }, reader);
      }
      namespace.tokenFirst += 1;
      namespace.dirty = true;
      forgotten += 1;
    }
    return forgotten;
  }

  /** The token's row goes too, unless the same token was remembered again since. */
  private drop(
    namespace: NamespaceState,
    { key, row }: { readonly key: Uint8Array; readonly row: Uint8Array },
    reader: StoreReader,
  ): void {
    this.rows.delete(key);
    const bytes = new ByteReader(row);
    bytes.varint();
    const own = tokenKey(namespace.id, bytes.bytes());
    const current = this.rows.get(own, reader);
    if (current === undefined) return;
    if (new ByteReader(current).varint() === namespace.tokenFirst) this.rows.delete(own);
  }
}

function aged(timeMs: number, state: MachineState): boolean {
  return timeMs + state.settings.tokenAgeMsMax <= state.timeMs;
}
