import { Backoff } from "../backoff.ts";
import type { OperationOutcome } from "../errors.ts";
import { REAL_RUNTIME, type Runtime } from "../runtime.ts";
import { GuardError, StaleTokenError } from "./guard-error.ts";
import { withoutTrailer, withTrailer, type Stamp } from "./s3-stamp.ts";
import { requireToken, tokenDigits, tokenFromDigits } from "./token.ts";

export { GuardError, StaleTokenError } from "./guard-error.ts";
export type { GuardErrorCode } from "./guard-error.ts";
export type { Stamp } from "./s3-stamp.ts";
export { requireConditionalWrites } from "./s3-conditions.ts";

/** A request to be signed and sent. */
export interface S3Request {
  method: string;
  headers: Record<string, string>;
  body?: Uint8Array<ArrayBuffer>;
  signal?: AbortSignal;
}

/** The part of a `Response` that the guard reads. */
export interface S3Response {
  readonly status: number;
  readonly headers: {
    /** The header's value. */
    get(name: string): string | null;
    /** Every header. */
    forEach(callback: (value: string, name: string) => void): void;
  };
  /** The body. */
  arrayBuffer(): Promise<ArrayBuffer>;
}

/**
 * Signs a request and sends it: `(url, init) => aws.fetch(url, init)` with an `AwsClient` of `aws4fetch`, or anything that
 * works like `fetch`. It should not repeat requests by itself: the guard does, and knows what it may repeat.
 */
export type S3Fetch = (url: string, request: S3Request) => Promise<S3Response>;

/** Which object is guarded, and how. */
export interface S3GuardOptions {
  /** The object's address. One guard guards one object. */
  readonly url: string;
  /** The name in errors. Default: host and path of the address. */
  readonly resource?: string;
  /**
   * How the stored bytes are told apart from those of any other write. ETags of S3 and of most servers like it are made
   * from the bytes alone: were the same bytes stored twice, under a smaller and a larger token, a condition could not tell
   * which is there.
   *
   * `trailer` (default): a line with the token is appended; {@link S3Guard.get} takes it off. `unique-etags`: nothing is
   * added; only for servers that give every write another ETag, also of equal bytes. Or a function of your own, for
   * example one that writes both into a field of a JSON document.
   */
  readonly stamp?: "trailer" | "unique-etags" | Stamp;
  /**
   * Takes an object without a mark for one that nobody has guarded yet. Default: false, and it is refused with
   * `guard-unmarked`: it may have lost its mark to a write past the guard.
   */
  readonly adopt?: boolean;
  /** How many times to look and write before giving up with `guard-contended`. Default: 12. */
  readonly attemptsMax?: number;
  readonly runtime?: Runtime;
}

/** How a guarded object is put. */
export interface S3PutOptions {
  /** More headers of the request, such as `content-type` and `x-amz-meta-...`. Not `content-encoding` with a trailer. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** A guarded object as it was when it was read. */
export interface GuardedObject {
  /** The bytes that were put, without the trailer. */
  readonly body: Uint8Array;
  /** The largest token that the object has seen. */
  readonly token: number;
  readonly etag: string;
}

/** What a look at the object found. */
interface Sight {
  /** Undefined: there is no object. */
  readonly etag: string | undefined;
  /** 0: no mark. */
  readonly token: number;
  readonly writeId: string;
  readonly stored: Uint8Array;
  /** To be kept when the object is written again with the same meaning. */
  readonly kept: Readonly<Record<string, string>>;
}

/** One call of the user's. */
interface Write {
  readonly token: number;
  readonly look: "HEAD" | "GET";
  readonly next: (sight: Sight) => Promise<Uint8Array> | Uint8Array;
  readonly headers: (sight: Sight) => Readonly<Record<string, string>>;
  readonly signal: AbortSignal | undefined;
  /** The same for all its attempts: it is recognised when an attempt took effect whose answer was lost. */
  readonly id: string;
}

const METADATA_PREFIX = "x-amz-meta-";
const TOKEN_HEADER = `${METADATA_PREFIX}lockstep-token`;
const WRITE_HEADER = `${METADATA_PREFIX}lockstep-write`;
const KEPT_HEADERS = ["content-type", "cache-control", "content-disposition", "content-language"];
const ATTEMPTS_MAX = 12;
const NOT_FOUND = 404;
const encoder = new TextEncoder();

/**
 * The guard of one object in S3 or a server like it: look at the object's mark, compare, and write on the condition that
 * the object is still the one that was looked at. A write with a smaller token cannot get past the condition, however late
 * it arrives, as long as the server keeps it (see {@link requireConditionalWrites}) and nobody deletes the object.
 */
export class S3Guard {
  readonly resource: string;
  readonly #fetch: S3Fetch;
  readonly #url: string;
  readonly #stamp: "trailer" | "unique-etags" | Stamp;
  readonly #adopt: boolean;
  readonly #attemptsMax: number;
  readonly #runtime: Runtime;
  #rejections = 0;

  constructor(fetch: S3Fetch, options: S3GuardOptions) {
    const { host, pathname } = new URL(options.url);
    this.resource = options.resource ?? `${host}${pathname}`;
    this.#fetch = fetch;
    this.#url = options.url;
    this.#stamp = options.stamp ?? "trailer";
    this.#adopt = options.adopt ?? false;
    this.#attemptsMax = options.attemptsMax ?? ATTEMPTS_MAX;
    this.#runtime = options.runtime ?? REAL_RUNTIME;
  }

  /** How many times this object saw a token refused. */
  get rejections(): number {
    return this.#rejections;
  }

  /**
   * The object and its mark; undefined when there is none.
   * @throws GuardError `guard-unmarked` when it carries no mark, or not the one that its metadata tells
   */
  async get(options: { readonly signal?: AbortSignal } = {}): Promise<GuardedObject | undefined> {
    const sight = await this.#look("GET", options.signal, "not-applied");
    if (sight instanceof GuardError) throw sight;
    if (sight.etag === undefined) return undefined;
    return { body: this.#body(sight), token: sight.token, etag: sight.etag };
  }

  /**
   * Writes the object, whatever is there, if the token is not stale.
   * @throws StaleTokenError when the object has seen a larger token
   * @throws GuardError `guard-contended` when others came first each time; `guard-failed` when the server refused or did
   * not answer (look at the outcome); `guard-unmarked` when the object carries no mark
   */
  async put(token: number, body: string | Uint8Array, options: S3PutOptions = {}): Promise<void> {
    const bytes = typeof body === "string" ? encoder.encode(body) : body;
    const headers = this.#checked(options.headers ?? {});
    await this.#write({
      token: requireToken(token),
      look: "HEAD",
      next: () => bytes,
      headers: () => headers,
      signal: options.signal,
      id: this.#runtime.uuid(),
    });
  }

  /**
   * Reads the object, lets `change` make new bytes from it, and writes those if nobody wrote meanwhile; otherwise begins
   * again. `change` may run several times; one of its results takes effect, once.
   * @param change given the object, or undefined when there is none
   * @throws as {@link put}, and what `change` throws
   */
  async update(
    token: number,
    change: (current: Uint8Array | undefined) => Promise<string | Uint8Array> | string | Uint8Array,
    options: S3PutOptions = {},
  ): Promise<void> {
    const headers = this.#checked(options.headers ?? {});
    await this.#write({
      token: requireToken(token),
      look: "GET",
      next: async (sight) => {
        const next = await change(sight.etag === undefined ? undefined : this.#body(sight));
        return typeof next === "string" ? encoder.encode(next) : next;
      },
      headers: (sight) => ({ ...sight.kept, ...headers }),
      signal: options.signal,
      id: this.#runtime.uuid(),
    });
  }

  /**
   * Marks the object with the token and leaves its bytes: from then on every earlier holder is refused. A new holder does
   * it before it reads what it will work on. Where there is no object, an empty one is made.
   * @throws as {@link put}
   */
  async seal(token: number, options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    await this.update(token, (current) => current ?? new Uint8Array(), options);
  }

  async #write(write: Write): Promise<void> {
    const backoff = new Backoff(this.#runtime);
    /** The state that an attempt without an answer was conditioned on. */
    let unanswered: { readonly etag: string | undefined } | undefined;
    for (let attempt = 1; attempt <= this.#attemptsMax; attempt += 1) {
      if (attempt > 1) await this.#sleep(backoff.nextMs());
      const outcome: OperationOutcome = unanswered === undefined ? "not-applied" : "unknown";
      if (write.signal?.aborted === true)
        throw failed("the write was cancelled", outcome, write.signal.reason);
      const sight = await this.#look(write.look, write.signal, outcome);
      if (sight instanceof GuardError) {
        if (attempt < this.#attemptsMax) continue;
        throw sight;
      }
      if (sight.writeId === write.id) return;
      // The attempt may have taken effect and been written over since.
      if (unanswered !== undefined && sight.etag !== unanswered.etag)
        throw failed("an answer was lost, and the object was written since", "unknown");
      this.#admit(write.token, sight);
      const body = await write.next(sight);
      const verdict = await this.#putIfUnchanged(write, sight, body);
      if (verdict === "written") return;
      if (verdict === "no-answer") unanswered = { etag: sight.etag };
    }
    if (unanswered !== undefined) throw failed("no answer to the write", "unknown");
    const message = `others wrote "${this.resource}" first, ${String(this.#attemptsMax)} times`;
    throw new GuardError("guard-contended", "not-applied", message);
  }

  #admit(token: number, sight: Sight): void {
    if (sight.token <= token) return;
    this.#rejections += 1;
    throw new StaleTokenError({ resource: this.resource, offered: token, seen: sight.token });
  }

  async #putIfUnchanged(
    write: Write,
    sight: Sight,
    body: Uint8Array,
  ): Promise<"written" | "changed" | "no-answer"> {
    const request: S3Request = {
      method: "PUT",
      headers: {
        ...write.headers(sight),
        [TOKEN_HEADER]: tokenDigits(write.token),
        [WRITE_HEADER]: write.id,
        ...(sight.etag === undefined ? { "if-none-match": "*" } : { "if-match": sight.etag }),
      },
      body: new Uint8Array(this.#stamped(body, write)),
      ...(write.signal === undefined ? {} : { signal: write.signal }),
    };
    let status: number;
    try {
      const response = await this.#fetch(this.#url, request);
      ({ status } = response);
      await response.arrayBuffer();
    } catch (error) {
      if (write.signal?.aborted === true) throw failed("the write was cancelled", "unknown", error);
      return "no-answer";
    }
    if (status >= 200 && status < 300) return "written";
    // Conflict: another conditional write is on its way.
    if (status === 412 || status === 409) return "changed";
    // What the condition names was deleted. Without an object to be named, it is the bucket that is not there.
    if (status === NOT_FOUND && sight.etag !== undefined) return "changed";
    if (isPassing(status)) return "no-answer";
    throw failed(`the server refused the write with status ${String(status)}`, "not-applied");
  }

  /** @returns an error when the server did not answer, or not now: it may be asked again */
  async #look(
    method: "HEAD" | "GET",
    signal: AbortSignal | undefined,
    outcome: OperationOutcome,
  ): Promise<Sight | GuardError> {
    const request: S3Request = { method, headers: {}, ...(signal === undefined ? {} : { signal }) };
    let response: S3Response;
    let stored: Uint8Array;
    try {
      response = await this.#fetch(this.#url, request);
      stored = new Uint8Array(await response.arrayBuffer());
    } catch (error) {
      const unseen = failed("the object could not be looked at", outcome, error);
      if (signal?.aborted === true) throw unseen;
      return unseen;
    }
    const { status, headers } = response;
    if (status === NOT_FOUND) return { etag: undefined, token: 0, writeId: "", stored, kept: {} };
    if (status !== 200) {
      const unseen = failed(`the server answered ${String(status)} to the look at the object`, outcome);
      if (isPassing(status)) return unseen;
      throw unseen;
    }
    const etag = headers.get("etag");
    if (etag === null || etag === "")
      throw new GuardError("guard-unsupported", outcome, "the server gives no ETag, which conditions need");
    const token = tokenFromDigits(headers.get(TOKEN_HEADER) ?? "");
    if (token === undefined && !this.#adopt) throw unmarked(this.resource, outcome);
    const writeId = headers.get(WRITE_HEADER) ?? "";
    return { etag, token: token ?? 0, writeId, stored, kept: keptHeaders(headers) };
  }

  #stamped(body: Uint8Array, write: Write): Uint8Array {
    if (this.#stamp === "unique-etags") return body;
    const stamp = this.#stamp === "trailer" ? withTrailer : this.#stamp;
    return stamp(body, write.token, write.id);
  }

  #body(sight: Sight): Uint8Array {
    // An adopted object has no trailer yet.
    if (this.#stamp !== "trailer" || sight.token === 0) return sight.stored;
    const body = withoutTrailer(sight.stored, sight.token, sight.writeId);
    if (body === undefined) throw unmarked(this.resource, "not-applied");
    return body;
  }

  /** The headers with their names in small letters: one that is given replaces one that is kept. */
  #checked(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
    const checked = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value] as const);
    for (const [name] of checked) {
      if (name === "content-encoding" && this.#stamp === "trailer")
        throw new TypeError("a compressed object ends with its compression: it cannot carry a trailer");
      if (name === "if-match" || name === "if-none-match" || name === TOKEN_HEADER || name === WRITE_HEADER)
        throw new TypeError(`the guard sets "${name}" itself`);
    }
    return Object.fromEntries(checked);
  }

  #sleep(delayMs: number): Promise<void> {
    return new Promise((resolve) => void this.#runtime.schedule(resolve, delayMs));
  }
}

function keptHeaders(headers: S3Response["headers"]): Readonly<Record<string, string>> {
  const kept: Record<string, string> = {};
  headers.forEach((value, name) => {
    if (KEPT_HEADERS.includes(name) || name.startsWith(METADATA_PREFIX)) kept[name] = value;
  });
  return kept;
}

/** Too busy, or broken for now: the next attempt may go through. */
const isPassing = (status: number): boolean => status >= 500 || status === 429;

function failed(message: string, outcome: OperationOutcome, cause?: unknown): GuardError {
  return new GuardError("guard-failed", outcome, message, cause === undefined ? {} : { cause });
}

function unmarked(resource: string, outcome: OperationOutcome): GuardError {
  const message = `"${resource}" carries no mark, or one that is not its own: somebody wrote it past the guard`;
  return new GuardError("guard-unmarked", outcome, message);
}
