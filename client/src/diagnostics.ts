/**
 * What clients of this process tell of themselves, on Node's diagnostics channels. Nothing is measured while nobody
 * listens. For OpenTelemetry there is `@lockstep/client/opentelemetry`, which listens here.
 */
import { channel, subscribe, unsubscribe, type Channel } from "node:diagnostics_channel";
import type { Session, SessionState } from "./session.ts";

/** When something was, by the runtime's clocks. */
export interface Span {
  /** Milliseconds since the epoch. */
  readonly startedAtMs: number;
  readonly durationMs: number;
}

/** On `lockstep.call`: an operation of the cell has ended, its repetitions and the wait for a connection included. */
export interface CallMessage extends Span {
  /** As its result is called: `put`, `range`, `delete`, `txn`, `lease-grant` and so on. */
  readonly operation: string;
  /** Of a failure: a `LockstepError`, mostly. */
  readonly error?: unknown;
}

/** On `lockstep.acquire`: an acquisition has ended, with its wait. */
export interface AcquireMessage extends Span {
  /** `lock`, `fair-lock`, `read-lock`, `write-lock`, `multi-lock`, `permit`, `leadership`, `endpoint` and so on. */
  readonly recipe: string;
  /** For people: `the fair lock "NAME"`. */
  readonly what: string;
  /** Of the session that it hangs on. */
  readonly owner: string;
  /** The fencing token of what was acquired, where that has one. */
  readonly token?: number;
  /** Of a failure; `lock-timeout` for what was not free in time. */
  readonly error?: unknown;
}

/** On `lockstep.release`: something that was held is held no longer. */
export interface ReleaseMessage extends Span {
  /** For people: `the fair lock "NAME"`. */
  readonly what: string;
  readonly token: number;
  readonly owner: string;
  /** Why: a `LockstepError` whose message says so. Its code is `not-held` after a release, or when somebody deleted the key. */
  readonly reason: unknown;
  /** Given up by its holder, and not lost. */
  readonly released: boolean;
}

/** `closed`: by its owner, or with the client. `ended`: by the cell. `deadline`: no renewal was acknowledged in time. */
export type SessionEnd = "closed" | "ended" | "deadline";

/** On `lockstep.session`: a session has begun, or its state has changed. */
export interface SessionMessage {
  readonly session: Session;
  readonly leaseId: string;
  readonly owner: string;
  readonly state: SessionState;
  /** Of `lost`: how it came to it. */
  readonly end?: SessionEnd;
}

/** One of Node's channels, and what is told on it: `diagnostics_channel.subscribe(name, ...)` hears the same. */
export class DiagnosticsChannel<M> {
  readonly name: string;
  readonly #channel: Channel;

  constructor(name: string) {
    this.name = name;
    this.#channel = channel(name);
  }

  get hasSubscribers(): boolean {
    return this.#channel.hasSubscribers;
  }

  /** For the library itself. */
  publish(message: M): void {
    this.#channel.publish(message);
  }

  /** @returns the function that ends it */
  subscribe(listener: (message: M) => void): () => void {
    const onMessage = (message: unknown): void => listener(message as M);
    subscribe(this.name, onMessage);
    return () => void unsubscribe(this.name, onMessage);
  }
}

/** The channels by what is told there. */
export interface Diagnostics {
  readonly call: DiagnosticsChannel<CallMessage>;
  readonly acquire: DiagnosticsChannel<AcquireMessage>;
  readonly release: DiagnosticsChannel<ReleaseMessage>;
  readonly session: DiagnosticsChannel<SessionMessage>;
}

/** `DIAGNOSTICS.acquire.subscribe((message) => ...)`. */
export const DIAGNOSTICS: Diagnostics = {
  call: new DiagnosticsChannel("lockstep.call"),
  acquire: new DiagnosticsChannel("lockstep.acquire"),
  release: new DiagnosticsChannel("lockstep.release"),
  session: new DiagnosticsChannel("lockstep.session"),
};

/** The clocks that spans are measured with. */
interface Clocks {
  now(): number;
  wallNow(): number;
}

/** How a piece of work went. */
export interface Ended extends Span {
  /** Absent: it did not fail. */
  readonly error?: unknown;
}

/**
 * Does `work`, and publishes how long it took and how it ended, where somebody listens. `told` makes the message; it gets
 * the result of work that did not fail.
 */
export function observed<T, M>(
  channel: DiagnosticsChannel<M>,
  clocks: Clocks,
  work: () => Promise<T>,
  told: (end: Ended, result?: T) => M,
): Promise<T> {
  if (!channel.hasSubscribers) return work();
  const startedAtMs = clocks.wallNow();
  const started = clocks.now();
  const span = (): Span => ({ startedAtMs, durationMs: clocks.now() - started });
  return work().then(
    (result) => {
      channel.publish(told(span(), result));
      return result;
    },
    (error: unknown) => {
      channel.publish(told({ ...span(), error }));
      throw error;
    },
  );
}
