import { toKubeError } from "./errors.ts";
import { readPages } from "./pages.ts";
import { resourcePath } from "./resource-path.ts";
import { isAtLeast, isOlder } from "./resource-version.ts";
import type { Rest } from "./rest.ts";
import { backoffMs, linkAbort, sleep } from "./runtime.ts";
import type { BackoffLimits, LinkedAbort } from "./runtime.ts";
import { KubeError } from "./types.ts";
import type { KubeObject, ResourceKind } from "./types.ts";
import { MalformedLine, parseWatchEvent } from "./watch-event.ts";
import type { WatchEvent } from "./watch-event.ts";
import { readLines } from "./watch-lines.ts";

/** All in milliseconds but `lineBytesMax` and `pageSize`. */
export interface ReflectorLimits {
  /** A whole list again, against events that were lost on the way; default 10 min, give or take a tenth. */
  readonly relistMs: number;
  /** The apiserver ends a watch by itself after about so long; default 5 min. */
  readonly watchMs: number;
  /** Without any byte (the apiserver sends a bookmark each minute) a connection counts as dead; default 90 s. */
  readonly idleMs: number;
  /** Until the head of a watch's answer; default 30 s. */
  readonly openMs: number;
  readonly backoff: BackoffLimits;
  readonly lineBytesMax: number;
  readonly pageSize: number;
}

export const REFLECTOR_LIMITS: ReflectorLimits = {
  relistMs: 10 * 60_000,
  watchMs: 5 * 60_000,
  idleMs: 90_000,
  openMs: 30_000,
  backoff: { baseMs: 1_000, maxMs: 10_000 },
  lineBytesMax: 16 * 1024 * 1024,
  pageSize: 500,
};

export interface ReflectorOptions<T extends KubeObject> {
  readonly rest: Rest;
  readonly kind: ResourceKind<T>;
  readonly namespace: string | undefined;
  readonly labelSelector: string | undefined;
  readonly fieldSelector: string | undefined;
  readonly limits: ReflectorLimits;
  readonly replace: (objects: readonly T[]) => void;
  readonly event: (event: Exclude<WatchEvent<T>, { type: "BOOKMARK" }>) => void;
  /** Each failure, for logs; the reflector goes on by itself. Must not throw. */
  readonly report: (message: string, error: Error) => void;
}

/** So many watches that end in an error without any progress: the position itself may be at fault. */
const WATCH_FAILURES_MAX = 5;
/** A watch that the apiserver ends sooner, with nothing in it, is a failure: else it would be opened in a circle. */
const WATCH_MS_MIN = 1_000;
/** A watch that held so long is proof enough that things work. */
const WATCH_MS_HEALTHY = 30_000;
const RELIST_RETRY_MS = 30_000;

class WatchEnd extends Error {
  readonly why: "idle" | "relist";

  constructor(why: "idle" | "relist", message: string) {
    super(message);
    this.why = why;
  }
}

/** Follows one list on the apiserver: list, watch, and again, whatever happens. */
export class Reflector<T extends KubeObject> {
  private readonly options: ReflectorOptions<T>;
  private readonly stopping = new AbortController();
  private running: Promise<void> | undefined;
  /** Where the watch goes on; undefined: a list is needed first. */
  private position: string | undefined;
  /** The newest position that was ever seen: never behind it again. */
  private newest: string | undefined;
  private relistAtMs = 0;
  private contactMs: number | undefined;
  private failures = 0;
  private watchFailures = 0;
  private problemText: string | undefined;

  constructor(options: ReflectorOptions<T>) {
    this.options = options;
  }

  start(): void {
    this.running ??= this.run();
  }

  /** Resolves when nothing of it is left. */
  async stop(): Promise<void> {
    this.stopping.abort(new KubeError("unavailable", "stopped"));
    await this.running;
  }

  /** Milliseconds since the apiserver last said anything; undefined: it never did. */
  ageMs(): number | undefined {
    return this.contactMs === undefined ? undefined : this.now() - this.contactMs;
  }

  /** What keeps it from following; undefined: nothing. */
  problem(): string | undefined {
    return this.problemText;
  }

  /** True when everything up to this version is known here. */
  reached(resourceVersion: string | undefined): boolean {
    return isAtLeast(this.newest, resourceVersion);
  }

  private async run(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      try {
        if (this.position === undefined) await this.list();
        else if (this.now() >= this.relistAtMs) await this.relist();
        await this.watch();
      } catch (error) {
        await this.recover(error);
      }
    }
  }

  private async list(): Promise<void> {
    const { rest, kind, namespace, labelSelector, fieldSelector, limits } = this.options;
    const startedMs = this.now();
    const told = (outcome: string): void => rest.metrics.listed(kind.plural, outcome, this.now() - startedMs);
    try {
      const whole = await readPages(rest, {
        kind,
        pageSize: limits.pageSize,
        signal: this.stopping.signal,
        ...(namespace === undefined ? {} : { namespace }),
        ...(labelSelector === undefined ? {} : { labelSelector }),
        ...(fieldSelector === undefined ? {} : { fieldSelector }),
      });
      if (this.stopping.signal.aborted) return;
      if (isOlder(whole.resourceVersion, this.newest)) {
        told("stale");
        throw new StaleList(`the list is of ${whole.resourceVersion}, already seen ${this.newest ?? ""}`);
      }
      this.contact();
      this.options.replace(whole.objects);
      this.advance(whole.resourceVersion);
      this.watchFailures = 0;
      this.problemText = undefined;
      this.relistAtMs = this.now() + limits.relistMs * (0.9 + 0.2 * rest.runtime.random());
      told("ok");
    } catch (error) {
      if (!(error instanceof StaleList)) told(toKubeError(error, "list").reason);
      throw error;
    }
  }

  /** The periodic list: when it fails, the watch that works goes on meanwhile. */
  private async relist(): Promise<void> {
    try {
      await this.list();
    } catch (error) {
      if (this.stopping.signal.aborted) return;
      this.relistAtMs = this.now() + RELIST_RETRY_MS * (1 + this.options.rest.runtime.random());
      this.tell("periodic list failed", error);
    }
  }

  private async watch(): Promise<void> {
    if (this.stopping.signal.aborted) return;
    const { rest, kind, limits } = this.options;
    const startedMs = this.now();
    const before = this.position;
    using link = linkAbort(this.stopping.signal);
    const idle = new Restartable((delayMs, task) => rest.runtime.after(delayMs, task));
    const relist = rest.runtime.after(this.relistAtMs - startedMs, () => {
      link.abort(new WatchEnd("relist", "the periodic list is due"));
    });
    try {
      idle.start(limits.openMs, () =>
        link.abort(new WatchEnd("idle", `no answer within ${limits.openMs} ms`)),
      );
      await this.follow(link, idle);
      if (this.position === before && this.now() - startedMs < WATCH_MS_MIN) {
        throw new KubeError("unavailable", `watch ${kind.plural}: ended at once`);
      }
      rest.metrics.watchEnded(kind.plural, "ended");
    } finally {
      idle.cancel();
      relist();
      if (this.position !== before || this.now() - startedMs >= WATCH_MS_HEALTHY) {
        this.failures = 0;
        this.watchFailures = 0;
      }
    }
  }

  private async follow(link: LinkedAbort, idle: Restartable): Promise<void> {
    const { rest, kind, namespace, labelSelector, fieldSelector, limits } = this.options;
    const timeoutSeconds = Math.ceil((limits.watchMs / 1000) * (0.8 + 0.4 * rest.runtime.random()));
    const query = {
      watch: "true",
      allowWatchBookmarks: "true",
      resourceVersion: this.position,
      timeoutSeconds: String(timeoutSeconds),
      labelSelector,
      fieldSelector,
    };
    const alive = (): void => {
      this.contact();
      idle.start(limits.idleMs, () => link.abort(new WatchEnd("idle", `nothing for ${limits.idleMs} ms`)));
    };
    try {
      const body = await rest.open(resourcePath(kind, { namespace, query }), link.signal);
      alive();
      this.problemText = undefined;
      for await (const line of readLines(body, { lineBytesMax: limits.lineBytesMax, onBytes: alive })) {
        link.signal.throwIfAborted();
        this.take(line);
      }
      link.signal.throwIfAborted();
    } catch (error) {
      throw link.signal.aborted ? link.signal.reason : error;
    }
  }

  private take(line: string): void {
    const { rest, kind } = this.options;
    const event = parseWatchEvent(line, kind);
    // Events of one watch come in order, so what is not newer was seen: a repetition, or a server that lags.
    if (this.reached(event.resourceVersion)) {
      rest.metrics.watchEvent(kind.plural, event.type === "BOOKMARK" ? "BOOKMARK" : "stale");
      return;
    }
    rest.metrics.watchEvent(kind.plural, event.type);
    if (event.type !== "BOOKMARK") this.options.event(event);
    this.advance(event.resourceVersion);
  }

  private advance(resourceVersion: string): void {
    this.position = resourceVersion;
    this.newest = resourceVersion;
  }

  private async recover(thrown: unknown): Promise<void> {
    if (this.stopping.signal.aborted) return;
    const { rest, kind, limits } = this.options;
    const listing = this.position === undefined;
    if (thrown instanceof WatchEnd && thrown.why === "relist") {
      rest.metrics.watchEnded(kind.plural, "relist");
      return;
    }
    if (thrown instanceof MalformedLine) rest.metrics.watchEvent(kind.plural, "malformed");
    const error = toKubeError(thrown, kind.plural);
    if (!listing) {
      rest.metrics.watchEnded(kind.plural, thrown instanceof WatchEnd ? "idle" : error.reason);
      this.watchFailures += 1;
      const positionAtFault = error.reason === "expired" || error.reason === "invalid";
      if (positionAtFault || this.watchFailures >= WATCH_FAILURES_MAX) this.position = undefined;
    }
    this.failures += 1;
    this.tell(listing ? "list failed" : "watch ended", thrown);
    const delayMs = backoffMs(limits.backoff, this.failures, () => rest.runtime.random());
    await sleep(rest.runtime, Math.max(delayMs, error.retryAfterMs ?? 0), this.stopping.signal);
  }

  private tell(what: string, thrown: unknown): void {
    const { kind, namespace, report } = this.options;
    const error = thrown instanceof Error ? thrown : new Error(String(thrown));
    const where = namespace === undefined ? kind.plural : `${kind.plural} in ${namespace}`;
    this.problemText = `${where}: ${what}: ${error.message}`;
    report(`${where}: ${what}`, error);
  }

  private contact(): void {
    this.contactMs = this.now();
  }

  private now(): number {
    return this.options.rest.runtime.monotonicMs();
  }
}

class StaleList extends Error {}

/** A timer of which only the last start counts. */
class Restartable {
  private readonly after: (delayMs: number, task: () => void) => () => void;
  private stop: (() => void) | undefined;

  constructor(after: (delayMs: number, task: () => void) => () => void) {
    this.after = after;
  }

  start(delayMs: number, task: () => void): void {
    this.stop?.();
    this.stop = this.after(delayMs, task);
  }

  cancel(): void {
    this.stop?.();
    this.stop = undefined;
  }
}
