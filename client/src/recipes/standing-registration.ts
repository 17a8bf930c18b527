import { Backoff } from "../backoff.ts";
import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { Session, SessionOptions } from "../session.ts";
import type { CallOptions } from "../types.ts";
import type { OnError } from "./callbacks.ts";
import { pauseUntil } from "./persist.ts";
import type { Registration, Service } from "./service.ts";

/** How an endpoint is kept registered. */
export interface KeepRegisteredOptions<T> {
  /** Of each session that carries the endpoint: a new one whenever the one before was lost. */
  readonly session: Omit<SessionOptions, "signal">;
  readonly value: T;
  /** Default: a random one; it stays the same. */
  readonly id?: string;
  /** Told of every loss, and of tries to come back that failed. */
  readonly onError: OnError;
  /** Gives up the first registration. */
  readonly signal?: AbortSignal;
}

/**
 * An endpoint that comes back by itself. (A lock must not: somebody else may have held it meanwhile. An endpoint says
 * no more than that its process is there.)
 */
export class StandingRegistration<T> implements AsyncDisposable {
  readonly id: string;
  readonly #client: Client;
  readonly #service: Service<T>;
  readonly #options: KeepRegisteredOptions<T>;
  readonly #stop = new AbortController();
  #value: T;
  #session: Session | undefined;
  #registration: Registration<T> | undefined;
  #running: Promise<void> = Promise.resolve();

  private constructor(client: Client, service: Service<T>, options: KeepRegisteredOptions<T>) {
    this.#client = client;
    this.#service = service;
    this.#options = options;
    this.#value = options.value;
    this.id = options.id ?? client.runtime.uuid();
  }

  /** See {@link Service.keepRegistered}. */
  static async open<T>(
    client: Client,
    service: Service<T>,
    options: KeepRegisteredOptions<T>,
  ): Promise<StandingRegistration<T>> {
    const standing = new StandingRegistration(client, service, options);
    const registration = await standing.#register(options.signal);
    standing.#running = standing.#run(registration);
    return standing;
  }

  /** Whether the endpoint is there now, as far as this process knows. */
  get registered(): boolean {
    return this.#registration !== undefined && !this.#registration.held.aborted;
  }

  /** Changes what callers see, now and after coming back. */
  async update(value: T, options: CallOptions = {}): Promise<void> {
    this.#value = value;
    if (this.registered) await this.#registration?.update(value, options);
  }

  /** Takes the endpoint out, and waits `drainMs` more, in which callers learn of it. It does not come back. */
  async deregister(options: CallOptions & { readonly drainMs?: number } = {}): Promise<void> {
    this.#stop.abort();
    try {
      await this.#registration?.deregister(options);
    } finally {
      await this.#session?.close();
      await this.#running;
    }
  }

  /** {@link deregister} that never throws: the end of the session takes the endpoint out at last. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.deregister();
    } catch {
      // See above.
    }
  }

  /** A session and an endpoint on it; neither stays when the other cannot be had. */
  async #register(signal?: AbortSignal): Promise<Registration<T>> {
    const call = signal === undefined ? {} : { signal };
    const session = await this.#client.session({ ...this.#options.session, ...call });
    this.#session = session;
    try {
      const value = this.#value;
      this.#registration = await this.#service.register({ session, id: this.id, value, ...call });
      return this.#registration;
    } catch (error) {
      await session.close();
      throw error;
    }
  }

  async #run(first: Registration<T>): Promise<void> {
    const stop = this.#stop.signal;
    const backoff = new Backoff(this.#client.runtime);
    let registration: Registration<T> | undefined = first;
    while (!stop.aborted) {
      if (registration !== undefined) {
        await ended(registration.held);
        if (this.#isOver()) return;
        this.#tell(registration.held.reason);
        await registration.session.close();
      }
      registration = undefined;
      try {
        registration = await this.#register(stop);
        backoff.reset();
      } catch (error) {
        if (this.#isOver() || isClosed(error)) return;
        // One's own endpoint of before may stand for a moment longer: the cell gives a session up later than we do.
        if (!isOwnOfBefore(error)) this.#tell(error);
        await pauseUntil(this.#client, stop, backoff.nextMs());
      }
    }
  }

  #isOver(): boolean {
    return this.#stop.signal.aborted;
  }

  #tell(error: unknown): void {
    try {
      this.#options.onError(error);
    } catch (thrown) {
      this.#client.runtime.afterTurn(() => {
        throw thrown;
      });
    }
  }
}

function ended(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}

function isClosed(error: unknown): boolean {
  return error instanceof LockstepError && error.code === "closed";
}

function isOwnOfBefore(error: unknown): boolean {
  return error instanceof LockstepError && error.code === "already-registered";
}
