import { classify, parseStatus, toKubeError } from "./errors.ts";
import type { WriteGate, WritePass } from "./gate.ts";
import { NO_METRICS } from "./metrics.ts";
import type { KubeMetrics } from "./metrics.ts";
import { linkAbort, sleep } from "./runtime.ts";
import type { Runtime } from "./runtime.ts";
import type { TokenBucket } from "./token-bucket.ts";
import type { ApiRequest, ApiResponse, Lane, Transport } from "./transport.ts";
import { KubeError } from "./types.ts";

export interface RestOptions {
  readonly transport: Transport;
  readonly runtime: Runtime;
  /** `urgent`: connections of its own, for what must not wait behind other calls. Default `call`. */
  readonly lane?: Exclude<Lane, "watch">;
  /** The client's own rate limit, shared by all that should share it; absent: none. */
  readonly bucket?: TokenBucket;
  /** Every write passes it; absent: all may. */
  readonly gate?: WriteGate;
  /** For a whole call, from the first byte out to the last byte in; default 15 s. */
  readonly timeoutMs?: number;
  /** An answer with more is refused; default 64 MiB. */
  readonly answerBytesMax?: number;
  readonly metrics?: KubeMetrics;
}

export interface RestRequest {
  /** For metrics: get, list, create, apply, patch, delete. */
  readonly verb: string;
  /** For metrics: the kind's plural. */
  readonly resource: string;
  readonly method: ApiRequest["method"];
  readonly path: string;
  readonly contentType?: string;
  readonly body?: unknown;
  /** Ends the call early; its reason is thrown as it is. */
  readonly signal?: AbortSignal;
}

const ANSWER_BYTES_MAX = 64 * 1024 * 1024;
const TIMEOUT_MS = 15_000;
const PAUSE_MS_MAX = 30_000;

/** Calls with raw JSON: deadline, rate limit, fencing, metrics, and one kind of error. */
export class Rest {
  readonly runtime: Runtime;
  readonly metrics: KubeMetrics;
  private readonly options: RestOptions;
  private readonly timeoutMs: number;

  constructor(options: RestOptions) {
    this.options = options;
    this.runtime = options.runtime;
    this.metrics = options.metrics ?? NO_METRICS;
    this.timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
  }

  /**
   * @returns the parsed answer
   * @throws KubeError for everything
   */
  async call(request: RestRequest): Promise<unknown> {
    const what = `${request.method} ${request.path}`;
    await this.admit(what, request.signal);
    // Asked as late as can be: the right to write may end while the call waits for its turn.
    const pass = request.method === "GET" ? undefined : this.options.gate?.enter();
    const startedMs = this.runtime.monotonicMs();
    let outcome = "unavailable";
    try {
      const [status, text, retryAfter] = await this.exchange(request, what, pass);
      outcome = String(status);
      if (status >= 200 && status < 300) return parseAnswer(text, what);
      const refusal = classify({ status, retryAfter, body: parseStatus(text), what, text });
      if (refusal.reason === "throttled" && refusal.retryAfterMs !== undefined) {
        this.options.bucket?.pause(Math.min(refusal.retryAfterMs, PAUSE_MS_MAX));
      }
      throw refusal;
    } catch (error) {
      if (error instanceof KubeError && error.status === 0) outcome = error.reason;
      throw error;
    } finally {
      pass?.leave();
      const durationMs = this.runtime.monotonicMs() - startedMs;
      this.metrics.request({ verb: request.verb, resource: request.resource, outcome, durationMs });
    }
  }

  /**
   * Opens a stream of bytes: `signal` ends it, and the caller sets the deadlines.
   * @throws KubeError when the answer is not a success
   */
  async open(path: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    const what = `GET ${path}`;
    await this.admit(what, signal);
    try {
      const response = await this.send({ method: "GET", path, lane: "watch", signal });
      if (response.status === 200) return response.body;
      const text = await this.readAll(response, what);
      const { status, retryAfter } = response;
      throw classify({ status, retryAfter, body: parseStatus(text), what, text });
    } catch (error) {
      throw toKubeError(signal.aborted ? signal.reason : error, what);
    }
  }

  private async admit(what: string, signal: AbortSignal | undefined): Promise<void> {
    const waitMs = this.options.bucket === undefined ? 0 : this.options.bucket.take(this.timeoutMs);
    if (waitMs === undefined) {
      throw new KubeError("throttled", `${what}: too many calls at once, by this client's own limit`, {
        retryAfterMs: this.timeoutMs,
      });
    }
    if (waitMs > 0) {
      this.metrics.throttled(waitMs);
      await sleep(this.runtime, waitMs, signal);
    }
    if (signal?.aborted === true) throw toKubeError(signal.reason, what);
  }

  private async exchange(
    request: RestRequest,
    what: string,
    pass: WritePass | undefined,
  ): Promise<[status: number, text: string, retryAfter: string | undefined]> {
    using link = linkAbort(request.signal, pass?.signal);
    const cancel = this.runtime.after(this.timeoutMs, () => {
      link.abort(new KubeError("unavailable", `${what}: no answer within ${this.timeoutMs} ms`));
    });
    try {
      const response = await this.send({
        method: request.method,
        path: request.path,
        lane: this.options.lane ?? "call",
        signal: link.signal,
        ...(request.contentType === undefined ? {} : { contentType: request.contentType }),
        ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
      });
      return [response.status, await this.readAll(response, what), response.retryAfter];
    } catch (error) {
      throw toKubeError(link.signal.aborted ? link.signal.reason : error, what);
    } finally {
      cancel();
    }
  }

  /** Ends with the signal even when the transport does not. */
  private send(request: ApiRequest): Promise<ApiResponse> {
    const { signal } = request;
    return new Promise((resolve, reject) => {
      const abort = (): void => reject(reasonOf(signal));
      if (signal.aborted) {
        abort();
        return;
      }
      signal.addEventListener("abort", abort, { once: true });
      this.options.transport
        .send(request)
        .then(resolve, reject)
        .finally(() => signal.removeEventListener("abort", abort));
    });
  }

  private async readAll(response: ApiResponse, what: string): Promise<string> {
    const bytesMax = this.options.answerBytesMax ?? ANSWER_BYTES_MAX;
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of response.body) {
      bytes += chunk.length;
      if (bytes > bytesMax)
        throw new KubeError("unavailable", `${what}: answer of more than ${bytesMax} bytes`);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString("utf8");
  }
}

function parseAnswer(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new KubeError("unavailable", `${what}: the answer is not JSON`, { cause });
  }
}

function reasonOf(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error(String(signal.reason));
}
