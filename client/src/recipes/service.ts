import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { Session } from "../session.ts";
import type { CallOptions, KeyValue, TxnResult } from "../types.ts";
import { acquiring } from "./acquiring.ts";
import { create } from "./attempt.ts";
import { deliver, type OnError } from "./callbacks.ts";
import { ChangeFeed } from "./change-feed.ts";
import { Claim, notHeld } from "./claim.ts";
import { checkName, keysOf, ROOTS } from "./names.ts";
import { fieldsOf, lockState, ownerMark, type LockState } from "./owner.ts";
import { StandingRegistration, type KeepRegisteredOptions } from "./standing-registration.ts";
import { TreeView, type ViewSubscription } from "./tree-view.ts";

/** How an endpoint is registered. */
export interface RegisterOptions<T> {
  /** The endpoint is there as long as this session. */
  readonly session: Session;
  /** What callers need to know: an address, a zone, a weight. Kept as JSON. */
  readonly value: T;
  /** Names this endpoint among those of the service. Default: a random one. */
  readonly id?: string;
  readonly signal?: AbortSignal;
}

/** How the set of endpoints is read. */
export interface EndpointsOptions<T> {
  /** Makes a `T` of the JSON that an endpoint gave, and throws when it is none: that endpoint is left out. */
  readonly parse: (json: unknown) => T;
  /** Told of endpoints that are left out, and of the end of the set if it ends by itself. */
  readonly onError: OnError;
  /** Gives up waiting for the first state. */
  readonly signal?: AbortSignal;
}

/** An endpoint, as callers see it. */
export interface Endpoint<T> extends LockState {
  readonly id: string;
  readonly value: T;
}

/** An endpoint of this process. */
export class Registration<T> extends Claim {
  readonly service: string;
  readonly id: string;

  /** Made by {@link Service.register}. */
  constructor(
    client: Client,
    session: Session,
    fields: { readonly service: string; readonly id: string; readonly key: string; readonly token: number },
  ) {
    const what = `the endpoint "${fields.id}" of "${fields.service}"`;
    super(client, { session, what, key: fields.key, token: fields.token });
    this.service = fields.service;
    this.id = fields.id;
  }

  /** Changes what callers see. @throws LockstepError `not-held` when the endpoint is gone. */
  async update(value: T, options: CallOptions = {}): Promise<void> {
    this.assertHeld();
    const { key, session, conditions } = this;
    const text = encode(this.client, session, value);
    const { succeeded } = await this.client.txn(
      { compares: conditions, success: [{ put: { key, value: text, leaseId: session.leaseId } }] },
      options,
    );
    if (!succeeded) throw notHeld(`${this.what} is gone`);
  }

  /**
   * Takes the endpoint out of the service, and waits `drainMs` more, in which callers learn of it. Close listeners
   * after that, and nobody calls in vain.
   */
  async deregister(options: CallOptions & { readonly drainMs?: number } = {}): Promise<void> {
    await this.release(options);
    const { drainMs = 0 } = options;
    if (drainMs > 0) await new Promise<void>((resolve) => this.client.runtime.schedule(resolve, drainMs));
  }
}

/** Who offers a service: endpoints that are there as long as their processes. */
export class Service<T> {
  readonly name: string;
  readonly #client: Client;
  readonly #prefix: string;

  constructor(client: Client, name: string) {
    checkName("a service", name);
    this.#client = client;
    this.name = name;
    this.#prefix = keysOf(ROOTS.service, name);
  }

  /**
   * Adds an endpoint. Whatever way it fails, it is not there.
   * @throws LockstepError `already-registered` when the id is taken; `session-lost`, `cancelled`.
   */
  register(options: RegisterOptions<T>): Promise<Registration<T>> {
    const client = this.#client;
    const { session, signal, id = client.runtime.uuid() } = options;
    if (id === "") throw new TypeError("an endpoint needs an id that is not empty");
    const key = `${this.#prefix}${id}`;
    const value = encode(client, session, options.value);
    const what = `the endpoint "${id}" of "${this.name}"`;
    // There is nothing to wait for: an id is free or it is not.
    const once = { session, waitMs: 0, ...(signal === undefined ? {} : { signal }) };
    return acquiring(client, { recipe: "endpoint", what }, once, async (wait) => {
      const remove =
        (condition: { readonly createRevision: number } | { readonly value: string }) =>
        (call: CallOptions): Promise<TxnResult> =>
          client.txn({ compares: [{ key, ...condition }], success: [{ delete: { key } }] }, call);
      const { responses, failures } = await create(client, wait, {
        txn: {
          compares: [{ key, createRevision: 0 }],
          success: [{ put: { key, value, leaseId: session.leaseId } }],
        },
        undoKnown: ({ responses: [put] }) =>
          put?.kind === "put" ? remove({ createRevision: put.createRevision }) : () => Promise.resolve(),
        undoUnknown: remove({ value }),
      });
      const [put] = responses;
      if (put?.kind !== "put") throw alreadyRegistered(what, failures[0]?.actual);
      return new Registration<T>(client, session, { service: this.name, id, key, token: put.createRevision });
    });
  }

  /**
   * Adds an endpoint that comes back by itself whenever its session was lost, with a session of its own. Resolves when
   * it is there for the first time; fails as {@link register} does.
   */
  keepRegistered(options: KeepRegisteredOptions<T>): Promise<StandingRegistration<T>> {
    return StandingRegistration.open(this.#client, this, options);
  }

  /** The endpoints, as a local set that follows the cell. Resolves when the first state is known. */
  endpoints(options: EndpointsOptions<T>): Promise<Endpoints<T>> {
    return Endpoints.open(this.#client, this.#prefix, options);
  }
}

/**
 * The endpoints of a service, known locally: reading them costs no call, and an outage never empties the set. What it
 * shows then is what was known last (see {@link stale}).
 */
export class Endpoints<T> implements AsyncDisposable {
  readonly #client: Client;
  readonly #prefix: string;
  readonly #view: TreeView;
  readonly #options: EndpointsOptions<T>;
  readonly #feed = new ChangeFeed<readonly Endpoint<T>[]>();
  #current: readonly Endpoint<T>[];

  private constructor(client: Client, prefix: string, view: TreeView, options: EndpointsOptions<T>) {
    this.#client = client;
    this.#prefix = prefix;
    this.#view = view;
    this.#options = options;
    this.#current = this.#read();
  }

  /** See {@link Service.endpoints}. */
  static async open<T>(client: Client, prefix: string, options: EndpointsOptions<T>): Promise<Endpoints<T>> {
    const { signal } = options;
    const view = await TreeView.open(client, { prefix }, signal === undefined ? {} : { signal });
    const endpoints = new Endpoints(client, prefix, view, options);
    const onChange = (): void => {
      endpoints.#current = endpoints.#read();
      endpoints.#feed.push(endpoints.#current);
    };
    void deliver(client, view.changes(), onChange, (error) => {
      endpoints.#feed.end(error);
      options.onError(error);
    });
    return endpoints;
  }

  /** Those that are there, by id. */
  get current(): readonly Endpoint<T>[] {
    return this.#current;
  }

  /** Whether it may have changed without our knowing: see {@link TreeView.stale}. */
  get stale(): boolean {
    return this.#view.stale;
  }

  /** The set after each change from this call on; of those that a slow reader missed only the newest. */
  changes(
    options: { readonly signal?: AbortSignal } = {},
  ): AsyncGenerator<readonly Endpoint<T>[], void, undefined> {
    return this.#feed.read(() => this.#current, options.signal);
  }

  /** {@link changes} with a callback, which delays nobody but itself. Resolves at the end. */
  subscribe(
    listener: (endpoints: readonly Endpoint<T>[]) => unknown,
    options: ViewSubscription,
  ): Promise<void> {
    return deliver(this.#client, this.changes(options), listener, options.onError);
  }

  /** Ends the set: it changes no more. */
  close(): void {
    this.#view.close();
    this.#feed.end();
  }

  /** {@link close}. */
  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  #read(): readonly Endpoint<T>[] {
    const endpoints: Endpoint<T>[] = [];
    for (const kv of this.#view.entries()) {
      const id = kv.keyText.slice(this.#prefix.length);
      try {
        endpoints.push({ ...lockState(kv), id, value: this.#options.parse(fieldsOf(kv).get("value")) });
      } catch (error) {
        this.#options.onError(error);
      }
    }
    return endpoints;
  }
}

function encode(client: Client, session: Session, value: unknown): string {
  return JSON.stringify({ ...ownerMark(client, session), value });
}

function alreadyRegistered(what: string, kv: KeyValue | undefined): LockstepError {
  const owner = lockState(kv)?.owner ?? "";
  return new LockstepError("already-registered", "not-applied", `${what} is there already, of "${owner}"`);
}
