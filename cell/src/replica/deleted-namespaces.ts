import type { LeaseEnd } from "@lockstep/gateway/coordinator";
import type { NamespaceId } from "../machine/types.ts";
import type { SessionKeeper } from "../session/types.ts";
import type { WatchHub } from "../watch/types.ts";
import type { CellState } from "./state.ts";

/** Leases that end in one turn: each may be told to a client. */
const LEASES_A_SLICE = 1024;
const PAUSE_MS = 1;

export interface DeletedNamespacesOptions {
  readonly state: CellState;
  readonly hub: WatchHub;
  readonly sessions: SessionKeeper;
  readonly after: (delayMs: number, task: () => void) => () => void;
  /** Tells whoever waits for the end of a lease. */
  readonly leaseEnded: (end: LeaseEnd) => void;
}

/**
 * Ends what clients hold in a namespace that is gone: watches are cancelled, leases end without an expiry, and those
 * who hold them are told. In slices, however many there are; nobody can add to them meanwhile.
 */
export class DeletedNamespaces {
  readonly #options: DeletedNamespacesOptions;
  readonly #names = new Map<NamespaceId, string>();
  #closed = false;

  constructor(options: DeletedNamespacesOptions) {
    this.#options = options;
  }

  deleted(id: NamespaceId, name: string): void {
    this.#options.hub.deleted(id, name);
    const idle = this.#names.size === 0;
    this.#names.set(id, name);
    if (idle) this.#slice();
  }

  close(): void {
    this.#closed = true;
  }

  #slice(): void {
    const [first] = this.#names;
    if (this.#closed || first === undefined) return;
    const [id, name] = first;
    const { sessions, state, leaseEnded, after } = this.#options;
    const { machine } = state;
    const leaseIds = sessions.forget(id, LEASES_A_SLICE);
    if (leaseIds.length < LEASES_A_SLICE) this.#names.delete(id);
    // Another of that name may have a lease of that id already: that one has not ended.
    const successor = machine.namespaceByName(name)?.id;
    for (const leaseId of leaseIds) {
      if (successor !== undefined && sessions.has(successor, leaseId)) continue;
      leaseEnded({ namespace: name, leaseId, cause: "forced", revision: machine.revision });
    }
    if (this.#names.size > 0) after(PAUSE_MS, () => this.#slice());
  }
}
