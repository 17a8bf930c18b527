// A proxy before the apiserver that answers now and then as an apiserver in trouble does. Every answer that it makes up
// is one that a real one may give: writes that were refused, or done while their answer was lost; lists and watches whose
// version is too old; watches that lag, or fall silent and break, from which a client resumes where it was.
import { Agent as PlainAgent, createServer as createPlainServer, request as plainRequest } from "node:http";
import type { IncomingMessage, RequestListener, Server, ServerResponse } from "node:http";
import { Agent as TlsAgent, createServer as createTlsServer, request as tlsRequest } from "node:https";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";

/** What a request asks for. */
export type RequestKind = "read" | "list" | "watch" | "write";

/**
 * conflict: 409. gone: 410. throttled: 429 with Retry-After. broken: 500, 502 or 503. slow: passed on late.
 * lost-answer: done, and the connection broken before the answer. late-events: each event of the watch comes late.
 * silence: the watch says nothing from some event on, and breaks.
 */
export type Fault =
  "conflict" | "gone" | "throttled" | "broken" | "slow" | "lost-answer" | "late-events" | "silence";

/** Share of the requests that a fault may befall, 0 to 1. */
export type FaultRates = Readonly<Record<Fault, number>>;

const BEFALLS: Readonly<Record<Fault, readonly RequestKind[]>> = {
  conflict: ["write"],
  gone: ["list", "watch"],
  throttled: ["read", "list", "watch", "write"],
  broken: ["read", "list", "watch", "write"],
  slow: ["read", "list", "watch", "write"],
  "lost-answer": ["write"],
  "late-events": ["watch"],
  silence: ["watch"],
};

const FAULTS = Object.keys(BEFALLS) as readonly Fault[];
const BROKEN_STATUSES = [500, 502, 503] as const;
const RETRY_AFTER_SECONDS = 1;
const SLOW_MS_MAX = 3_000;
const LATE_MS_MAX = 2_000;
const SILENCE_MS = 5_000;
/** A watch that is to fall silent shows at most so many pieces before. */
const SILENT_AFTER_MAX = 10;

export function kindOf(method: string, url: string): RequestKind {
  if (method !== "GET") return "write";
  const { pathname, searchParams } = new URL(url, "http://apiserver");
  if (searchParams.get("watch") === "true" || searchParams.get("watch") === "1") return "watch";
  // /api/v1[/namespaces/NAME]/PLURAL[/NAME] and /apis/GROUP/VERSION[/namespaces/NAME]/PLURAL[/NAME]
  const parts = pathname.split("/").filter((part) => part !== "");
  const rest = parts.slice(parts[0] === "api" ? 2 : 3);
  const resource = rest[0] === "namespaces" && rest.length > 2 ? rest.slice(2) : rest;
  return resource.length === 1 ? "list" : "read";
}

/** @param draw in [0, 1). @returns undefined: no fault this time */
export function chooseFault(kind: RequestKind, rates: FaultRates, draw: number): Fault | undefined {
  let bound = 0;
  for (const fault of FAULTS) {
    if (!BEFALLS[fault].includes(kind)) continue;
    bound += rates[fault];
    if (draw < bound) return fault;
  }
  return undefined;
}

interface Refusal {
  readonly status: number;
  readonly reason: string;
  readonly message: string;
}

/** The answer to a request that is refused by `fault`; undefined: it is not refused. */
export function refusalOf(fault: Fault, draw: number): Refusal | undefined {
  switch (fault) {
    case "conflict":
      return { status: 409, reason: "Conflict", message: "the object has been modified (injected)" };
    case "gone":
      return { status: 410, reason: "Expired", message: "too old resource version (injected)" };
    case "throttled":
      return { status: 429, reason: "TooManyRequests", message: "please try again later (injected)" };
    case "broken": {
      const status = BROKEN_STATUSES[Math.floor(draw * BROKEN_STATUSES.length)] ?? 500;
      return { status, reason: "InternalError", message: "something is broken (injected)" };
    }
    case "slow":
    case "lost-answer":
    case "late-events":
    case "silence":
      return undefined;
  }
}

export interface FaultProxyOptions {
  /** Where requests go on to, `https://host:port`. */
  readonly upstream: string;
  /** PEM texts: the proxy's own certificate, and the authority of the upstream. Absent: plain HTTP, both ways. */
  readonly tls?: { readonly cert: string; readonly key: string; readonly ca: string };
  readonly rates: FaultRates;
  /** Draws in [0, 1). */
  readonly random: () => number;
}

interface Passage {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly fault: Fault | undefined;
}

/** Listens on a free port of 127.0.0.1. */
export class FaultProxy {
  readonly #options: FaultProxyOptions;
  readonly #server: Server;
  readonly #agent: PlainAgent | TlsAgent;
  readonly #injected = new Map<Fault, number>();
  readonly #closing = new AbortController();
  #requests = 0;

  private constructor(options: FaultProxyOptions) {
    this.#options = options;
    const { tls } = options;
    const listener: RequestListener = (request, response) => this.#serve(request, response);
    this.#server = tls === undefined ? createPlainServer(listener) : createTlsServer(tls, listener);
    this.#agent =
      tls === undefined ? new PlainAgent({ keepAlive: true }) : new TlsAgent({ keepAlive: true, ca: tls.ca });
  }

  static async start(options: FaultProxyOptions): Promise<FaultProxy> {
    const proxy = new FaultProxy(options);
    await new Promise<void>((resolve, reject) => {
      proxy.#server.once("error", reject);
      proxy.#server.listen(0, "127.0.0.1", resolve);
    });
    return proxy;
  }

  get url(): string {
    const { port } = this.#server.address() as AddressInfo;
    return `${this.#options.tls === undefined ? "http" : "https"}://127.0.0.1:${String(port)}`;
  }

  /** All requests so far. */
  get requests(): number {
    return this.#requests;
  }

  /** How often each fault was injected; those that were not are left out. */
  get injected(): Readonly<Partial<Record<Fault, number>>> {
    return Object.fromEntries(this.#injected);
  }

  /** Breaks what is open and listens no more. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#agent.destroy();
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const { rates, random } = this.#options;
    this.#requests += 1;
    const kind = kindOf(request.method ?? "GET", request.url ?? "/");
    const fault = chooseFault(kind, rates, random());
    if (fault !== undefined) this.#injected.set(fault, (this.#injected.get(fault) ?? 0) + 1);
    const refusal = fault === undefined ? undefined : refusalOf(fault, random());
    if (refusal !== undefined) {
      request.resume();
      refuse(response, refusal);
      return;
    }
    this.#pass({ request, response, fault }).catch(() => response.destroy());
  }

  async #pass(passage: Passage): Promise<void> {
    const { request, response, fault } = passage;
    if (fault === "slow") await this.#wait(this.#options.random() * SLOW_MS_MAX);
    const answer = await this.#ask(request, response);
    if (fault === "lost-answer") {
      answer.resume();
      response.destroy();
      return;
    }
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    response.flushHeaders();
    if (fault === "late-events") await this.#passLate(answer, response);
    else if (fault === "silence") await this.#passUntilSilent(answer, response);
    else for await (const piece of answer) response.write(piece);
    response.end();
  }

  #ask(request: IncomingMessage, response: ServerResponse): Promise<IncomingMessage> {
    const { upstream, tls } = this.#options;
    const send = tls === undefined ? plainRequest : tlsRequest;
    const headers = { ...request.headers };
    delete headers.host;
    return new Promise((resolve, reject) => {
      const onward = send(
        new URL(request.url ?? "/", upstream),
        { method: request.method, headers, agent: this.#agent },
        resolve,
      );
      onward.once("error", reject);
      // Who went away asks for nothing any more: a watch would stay for ever.
      response.once("close", () => onward.destroy());
      request.pipe(onward);
    });
  }

  async #passLate(answer: IncomingMessage, response: ServerResponse): Promise<void> {
    for await (const piece of answer) {
      await this.#wait(this.#options.random() * LATE_MS_MAX);
      response.write(piece);
    }
  }

  async #passUntilSilent(answer: IncomingMessage, response: ServerResponse): Promise<void> {
    let left = Math.floor(this.#options.random() * SILENT_AFTER_MAX);
    for await (const piece of answer) {
      if (left <= 0) break;
      left -= 1;
      response.write(piece);
    }
    await this.#wait(SILENCE_MS);
    response.destroy();
  }

  async #wait(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.#closing.signal });
  }
}

function refuse(response: ServerResponse, { status, reason, message }: Refusal): void {
  const retry = status === 429 ? { "retry-after": String(RETRY_AFTER_SECONDS) } : {};
  response.writeHead(status, { "content-type": "application/json", ...retry });
  const details = status === 429 ? { details: { retryAfterSeconds: RETRY_AFTER_SECONDS } } : {};
  const body = { kind: "Status", apiVersion: "v1", status: "Failure", message, reason, code: status };
  response.end(JSON.stringify({ ...body, ...details }));
}

/** Draws in [0, 1) that a seed decides. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    // A 32-bit counter through a mixing function: good enough to choose faults.
    state = (state + 0x9e3779b9) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
    mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
    return ((mixed ^ (mixed >>> 16)) >>> 0) / 2 ** 32;
  };
}
