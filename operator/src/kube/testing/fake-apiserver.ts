import type { Runtime } from "../runtime.ts";
import type { KubeObject, ObjectRef, ResourceKind } from "../types.ts";
import { FakeRefusal, FakeStore } from "./fake-store.ts";
import type { FakeKind, LogEntry } from "./fake-store.ts";
import { omit } from "./json.ts";
import type { Json } from "./json.ts";
import { selects } from "./selectors.ts";

export interface FakeRequest {
  readonly method: string;
  /** With the query. */
  readonly path: string;
  readonly contentType: string | undefined;
  readonly body: string | undefined;
}

/** Where an answer goes. After {@link reset} or the client's leaving nothing more arrives. */
export interface FakeSink {
  head(status: number, headers?: Readonly<Record<string, string>>): void;
  write(text: string): void;
  end(): void;
  /** The connection breaks. */
  reset(): void;
}

/** What goes wrong with a request. `acts`: it is carried out first, only the answer is lost. */
export type Fault =
  | {
      readonly kind: "status";
      readonly status: number;
      readonly retryAfterSeconds?: number;
      readonly reason?: string;
      readonly acts?: boolean;
    }
  | { readonly kind: "reset"; readonly acts?: boolean }
  | { readonly kind: "hang"; readonly acts?: boolean }
  | { readonly kind: "slow"; readonly delayMs: number }
  /** A read is answered as of so many revisions ago. */
  | { readonly kind: "lag"; readonly revisions: number };

/** What goes wrong with one line of a watch. `replay`: the line before comes once more. `silence`: the connection stays, and nothing comes any more. */
export type StreamFault =
  "drop" | "duplicate" | "replay" | "reset" | "malformed" | "gone" | "error" | "silence" | "huge";

export interface FakeCall {
  readonly method: string;
  readonly path: string;
  readonly plural: string;
  readonly watch: boolean;
  readonly namespace: string | undefined;
  readonly name: string | undefined;
  readonly subresource: "status" | undefined;
  readonly query: URLSearchParams;
  readonly kind: ResourceKind;
}

export interface FakeApiServerOptions {
  readonly runtime: Runtime;
  readonly kinds: readonly FakeKind[];
  /** Default 1 min, as the real one. */
  readonly bookmarkMs?: number;
}

interface Watch {
  readonly call: FakeCall;
  readonly sink: FakeSink;
  silent: boolean;
  /** The last event, as it was sent. */
  before: string;
  readonly close: () => void;
}

const BOOKMARK_MS = 60_000;
const CALLS_MAX = 100_000;
/** Of a line that is `huge`. */
const HUGE_BYTES = 1024 * 1024;

/**
 * The part of an apiserver that controllers lean on: resourceVersions, paged lists, watches with bookmarks, server-side
 * apply (lists as one value), the status subresource, preconditions, finalizers. And everything that can go wrong with it.
 */
export class FakeApiServer {
  readonly store: FakeStore;
  /** Decides about each request; undefined: it goes well. */
  fault: ((call: FakeCall) => Fault | undefined) | undefined;
  /** Decides about each line of each watch. */
  streamFault: ((call: FakeCall, type: string) => StreamFault | undefined) | undefined;
  /** What was asked, oldest first. */
  readonly calls: FakeCall[] = [];
  private readonly runtime: Runtime;
  private readonly bookmarkMs: number;
  private readonly watches = new Set<Watch>();
  private compacted = 0;

  constructor(options: FakeApiServerOptions) {
    this.runtime = options.runtime;
    this.bookmarkMs = options.bookmarkMs ?? BOOKMARK_MS;
    this.store = new FakeStore(options.runtime, options.kinds);
    this.store.onWrite((entry) => {
      for (const watch of [...this.watches]) this.deliver(watch, entry);
    });
  }

  get openWatches(): number {
    return this.watches.size;
  }

  /** Positions before now are gone: watches and pages that stand there get 410. */
  compact(): void {
    this.compacted = this.store.revision;
  }

  /** Breaks all watches. */
  resetWatches(): void {
    for (const watch of [...this.watches]) {
      watch.close();
      watch.sink.reset();
    }
  }

  /** @returns to be called when the client leaves */
  handle(request: FakeRequest, sink: FakeSink): () => void {
    let leave = (): void => undefined;
    const call = parseCall(request, this.store);
    if (call === undefined) {
      sink.head(404, { "content-type": "text/plain" });
      sink.write("404 page not found\n");
      sink.end();
      return leave;
    }
    if (this.calls.length < CALLS_MAX) this.calls.push(call);
    const fault = this.fault?.(call);
    if (fault?.kind === "slow") {
      leave = this.runtime.after(fault.delayMs, () => {
        leave = this.serve(call, request, sink, 0);
      });
    } else if (fault === undefined || fault.kind === "lag") {
      leave = this.serve(call, request, sink, fault?.revisions ?? 0);
    } else {
      if (fault.acts === true) this.serve(call, request, NOWHERE, 0)();
      if (fault.kind === "reset") sink.reset();
      if (fault.kind === "status") answerStatus(sink, fault);
    }
    return () => leave();
  }

  private serve(call: FakeCall, request: FakeRequest, sink: FakeSink, lag: number): () => void {
    try {
      if (call.watch) return this.watch(call, sink);
      const answer = this.act(call, request, Math.max(0, this.store.revision - lag));
      sink.head(request.method === "POST" ? 201 : 200, { "content-type": "application/json" });
      sink.write(JSON.stringify(answer));
      sink.end();
    } catch (error) {
      if (!(error instanceof FakeRefusal)) throw error;
      refuse(sink, error);
    }
    return () => undefined;
  }

  private act(call: FakeCall, request: FakeRequest, revision: number): unknown {
    const { kind, name, namespace, query, subresource } = call;
    if (name === undefined) {
      if (request.method === "GET") return this.list(call, revision);
      if (request.method !== "POST") throw new FakeRefusal(405, "MethodNotAllowed", "not allowed");
      const body = parseBody(request);
      const metadata = { ...(body["metadata"] as Json), ...(namespace === undefined ? {} : { namespace }) };
      return this.store.create(kind, { ...body, metadata } as unknown as KubeObject, {
        manager: query.get("fieldManager") ?? "unknown",
      });
    }
    const ref: ObjectRef = namespace === undefined ? { name } : { name, namespace };
    switch (request.method) {
      case "GET":
        return this.getAt(kind, ref, revision);
      case "PATCH":
        return this.patch(call, request, ref);
      case "DELETE": {
        const body = request.body === undefined || request.body === "" ? {} : parseBody(request);
        const { preconditions, gracePeriodSeconds } = body as {
          preconditions?: Json;
          gracePeriodSeconds?: number;
        };
        const grace = gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds };
        const left = this.store.delete(kind, ref, { ...preconditions, ...grace });
        return left ?? { kind: "Status", apiVersion: "v1", status: "Success" };
      }
      default:
        throw new FakeRefusal(405, "MethodNotAllowed", `${request.method} ${subresource ?? ""} not allowed`);
    }
  }

  private patch(call: FakeCall, request: FakeRequest, ref: ObjectRef): KubeObject {
    const { kind, query, subresource } = call;
    const manager = query.get("fieldManager") ?? "unknown";
    const body = parseBody(request);
    if (request.contentType === "application/merge-patch+json") {
      return this.store.patch(kind, ref, body, { manager, subresource });
    }
    if (request.contentType !== "application/apply-patch+yaml") {
      throw new FakeRefusal(415, "UnsupportedMediaType", `content type ${request.contentType ?? ""}`);
    }
    const object = { ...body, metadata: { ...(body["metadata"] as Json), ...ref } } as unknown as KubeObject;
    return this.store.apply(kind, object, { manager, subresource, force: query.get("force") === "true" });
  }

  private getAt(kind: ResourceKind, ref: ObjectRef, revision: number): KubeObject {
    const found = this.store
      .list(kind, revision)
      .find(({ metadata }) => metadata.name === ref.name && metadata.namespace === ref.namespace);
    if (found !== undefined) return found;
    const message = `${kind.plural} "${ref.name}" not found`;
    throw new FakeRefusal(404, "NotFound", message, { name: ref.name, kind: kind.plural });
  }

  private list(call: FakeCall, revision: number): unknown {
    const { kind, query } = call;
    const token = query.get("continue");
    const [at, offset] =
      token === null
        ? [revision, 0]
        : (JSON.parse(Buffer.from(token, "base64url").toString()) as [number, number]);
    if (at < this.compacted && token !== null)
      throw new FakeRefusal(410, "Expired", "the continue token is too old");
    const limit = Number(query.get("limit") ?? Infinity);
    const all = this.store.list(kind, at).filter((object) => shows(call, object));
    const items = all.slice(offset, offset + limit);
    const more = offset + items.length < all.length;
    const next = Buffer.from(JSON.stringify([at, offset + items.length])).toString("base64url");
    return {
      apiVersion: kind.apiVersion,
      kind: `${kind.kind}List`,
      metadata: { resourceVersion: String(at), ...(more ? { continue: next } : {}) },
      // As for built-in kinds.
      items: items.map((object) => omit(object, "apiVersion", "kind")),
    };
  }

  private watch(call: FakeCall, sink: FakeSink): () => void {
    const from = Number(call.query.get("resourceVersion") ?? this.store.revision);
    const timers: (() => void)[] = [];
    const close = (): void => {
      this.watches.delete(watch);
      for (const cancel of timers.splice(0)) cancel();
    };
    const watch: Watch = { call, sink, silent: false, before: "", close };
    sink.head(200, { "content-type": "application/json" });
    if (from < this.compacted) {
      sink.write(line("ERROR", statusObject(410, "Expired", "too old resource version")));
      sink.end();
      return close;
    }
    this.watches.add(watch);
    for (const entry of this.store.log) {
      if (entry.revision > from && this.watches.has(watch)) this.deliver(watch, entry);
    }
    if (!this.watches.has(watch)) return close;
    const bookmark = (): void => {
      if (call.query.get("allowWatchBookmarks") === "true") this.bookmark(watch);
      if (this.watches.has(watch)) timers.push(this.runtime.after(this.bookmarkMs, bookmark));
    };
    timers.push(this.runtime.after(this.bookmarkMs, bookmark));
    const timeoutMs = Number(call.query.get("timeoutSeconds") ?? 1800) * 1000;
    timers.push(
      this.runtime.after(timeoutMs, () => {
        close();
        if (!watch.silent) sink.end();
      }),
    );
    return close;
  }

  private bookmark(watch: Watch): void {
    const { kind } = watch.call;
    const metadata = { resourceVersion: String(this.store.revision) };
    this.send(watch, "BOOKMARK", { apiVersion: kind.apiVersion, kind: kind.kind, metadata });
  }

  private deliver(watch: Watch, entry: LogEntry): void {
    const { call } = watch;
    if (entry.plural !== call.plural || entry.object.apiVersion !== call.kind.apiVersion) return;
    const now = entry.type !== "DELETED" && shows(call, entry.object);
    const before = entry.previous !== undefined && shows(call, entry.previous);
    if (!now && !before) return;
    const type = !now ? "DELETED" : before ? "MODIFIED" : "ADDED";
    this.send(watch, type, entry.object);
  }

  private send(watch: Watch, type: string, object: unknown): void {
    if (watch.silent) return;
    const fault = this.streamFault?.(watch.call, type);
    switch (fault) {
      case undefined:
        watch.sink.write(line(type, object));
        break;
      case "duplicate":
        watch.sink.write(line(type, object) + line(type, object));
        break;
      case "malformed":
        watch.sink.write(`${line(type, object).slice(0, 20)}\n`);
        break;
      case "huge":
        watch.sink.write(line(type, { object, padding: "x".repeat(HUGE_BYTES) }));
        break;
      case "replay":
        watch.sink.write(line(type, object) + watch.before);
        break;
      case "drop":
        break;
      case "silence":
        watch.silent = true;
        break;
      case "reset":
        watch.close();
        watch.sink.reset();
        break;
      case "gone":
      case "error":
        watch.close();
        watch.sink.write(
          line(
            "ERROR",
            fault === "gone" ? statusObject(410, "Expired", "gone") : statusObject(500, "", "oops"),
          ),
        );
        watch.sink.end();
    }
    if (type !== "BOOKMARK") watch.before = line(type, object);
  }
}

const NOWHERE: FakeSink = {
  head: () => undefined,
  write: () => undefined,
  end: () => undefined,
  reset: () => undefined,
};

function parseCall(request: FakeRequest, store: FakeStore): FakeCall | undefined {
  const url = new URL(request.path, "http://apiserver");
  const parts = url.pathname.split("/").filter((part) => part !== "");
  const root = parts.shift();
  const apiVersion = root === "api" ? parts.shift() : [parts.shift(), parts.shift()].join("/");
  const inNamespace = parts[0] === "namespaces" && parts.length >= 3;
  const namespace = inNamespace ? decodeURIComponent(parts.splice(0, 2)[1] ?? "") : undefined;
  const [plural = "", name, subresource] = parts;
  const known = store.kinds.get(`${apiVersion ?? ""}/${plural}`);
  if (known === undefined || (subresource !== undefined && subresource !== "status")) return undefined;
  return {
    method: request.method,
    path: request.path,
    plural,
    watch: url.searchParams.get("watch") === "true",
    namespace,
    name: name === undefined ? undefined : decodeURIComponent(name),
    subresource,
    query: url.searchParams,
    kind: known.kind,
  };
}

function shows(call: FakeCall, object: KubeObject): boolean {
  if (call.namespace !== undefined && object.metadata.namespace !== call.namespace) return false;
  return selects(
    object,
    call.query.get("labelSelector") ?? undefined,
    call.query.get("fieldSelector") ?? undefined,
  );
}

function parseBody(request: FakeRequest): Json {
  try {
    return JSON.parse(request.body ?? "") as Json;
  } catch {
    throw new FakeRefusal(400, "BadRequest", "the body is not JSON");
  }
}

function line(type: string, object: unknown): string {
  return `${JSON.stringify({ type, object })}\n`;
}

function statusObject(code: number, reason: string, message: string, details?: Json): Json {
  return {
    apiVersion: "v1",
    kind: "Status",
    status: "Failure",
    code,
    reason,
    message,
    ...(details && { details }),
  };
}

function refuse(sink: FakeSink, refusal: FakeRefusal): void {
  sink.head(refusal.status, { "content-type": "application/json" });
  sink.write(JSON.stringify(statusObject(refusal.status, refusal.reason, refusal.message, refusal.details)));
  sink.end();
}

function answerStatus(sink: FakeSink, fault: Extract<Fault, { kind: "status" }>): void {
  const after = fault.retryAfterSeconds;
  sink.head(fault.status, {
    "content-type": "application/json",
    ...(after === undefined ? {} : { "retry-after": String(after) }),
  });
  sink.write(JSON.stringify(statusObject(fault.status, fault.reason ?? "", "injected")));
  sink.end();
}
