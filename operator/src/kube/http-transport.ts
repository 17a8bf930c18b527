import { Pool, ProxyAgent } from "undici";
import type { Dispatcher } from "undici";
import type { ClusterAccess, ClusterTls, Credentials } from "./cluster.ts";
import { REAL_RUNTIME } from "./runtime.ts";
import type { Runtime } from "./runtime.ts";
import type { ApiRequest, ApiResponse, Lane, Transport } from "./transport.ts";

export interface HttpTransportOptions {
  readonly access: ClusterAccess;
  /** Sent as User-Agent: `name/version`. */
  readonly userAgent: string;
  /** Connections for calls; default 16. More calls at once wait for a connection. */
  readonly connectionsMax?: number;
  /** How long credentials are used before they are asked for again; default 10 s. */
  readonly credentialsMs?: number;
  readonly runtime?: Runtime;
}

const CONNECT_TIMEOUT_MS = 5_000;
const CREDENTIALS_TIMEOUT_MS = 30_000;
/** Idle connections are kept this long: longer than the pause between two renewals of a lease. */
const KEEP_ALIVE_MS = 60_000;
const TCP_KEEP_ALIVE_MS = 15_000;
const URGENT_CONNECTIONS = 2;
/** Far above the kinds times namespaces that anybody watches; a bound all the same. */
const WATCH_CONNECTIONS = 1_024;

/**
 * HTTP/1.1 over kept connections. Not HTTP/2: there all requests share one connection, and one half-open connection
 * stops watches, calls and lease renewals together.
 */
export function createHttpTransport(options: HttpTransportOptions): Transport {
  return new HttpTransport(options);
}

class HttpTransport implements Transport {
  private readonly options: HttpTransportOptions;
  private readonly runtime: Runtime;
  private readonly basePath: string;
  private readonly origin: string;
  private held: { credentials: Credentials; untilMs: number } | undefined;
  private asking: Promise<Credentials> | undefined;
  private pools: { tls: ClusterTls; lanes: Record<Lane, Dispatcher> } | undefined;
  private closed = false;

  constructor(options: HttpTransportOptions) {
    this.options = options;
    this.runtime = options.runtime ?? REAL_RUNTIME;
    const server = new URL(options.access.server);
    this.origin = server.origin;
    this.basePath = server.pathname.replace(/\/+$/, "");
  }

  async send(request: ApiRequest): Promise<ApiResponse> {
    const credentials = await this.credentials();
    request.signal.throwIfAborted();
    const answer = await this.lane(request.lane, credentials.tls).request({
      origin: this.origin,
      path: this.basePath + request.path,
      method: request.method,
      headers: {
        accept: "application/json",
        "user-agent": this.options.userAgent,
        ...credentials.headers,
        ...(request.contentType === undefined ? {} : { "content-type": request.contentType }),
      },
      ...(request.body === undefined ? {} : { body: request.body }),
      signal: request.signal,
      // The caller's signal is the one deadline.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    if (answer.statusCode === 401) this.held = undefined;
    const retryAfter = answer.headers["retry-after"];
    return {
      status: answer.statusCode,
      retryAfter: Array.isArray(retryAfter) ? retryAfter[0] : retryAfter,
      body: answer.body as AsyncIterable<Uint8Array>,
    };
  }

  async close(): Promise<void> {
    this.closed = true;
    const lanes = Object.values(this.pools?.lanes ?? {});
    this.pools = undefined;
    await Promise.all(lanes.map((pool) => pool.destroy()));
  }

  private async credentials(): Promise<Credentials> {
    if (this.held !== undefined && this.runtime.monotonicMs() < this.held.untilMs)
      return this.held.credentials;
    // One look for all who need it: an exec plugin is a process.
    this.asking ??= this.withinTime(this.options.access.credentials()).finally(() => {
      this.asking = undefined;
    });
    const credentials = await this.asking;
    const untilMs = this.runtime.monotonicMs() + (this.options.credentialsMs ?? 10_000);
    this.held = { credentials, untilMs };
    return credentials;
  }

  /** An exec plugin that hangs must not hold up the next try. */
  private withinTime<V>(answer: Promise<V>): Promise<V> {
    return new Promise((resolve, reject) => {
      const late = (): void => reject(new Error(`no credentials within ${CREDENTIALS_TIMEOUT_MS} ms`));
      const cancel = this.runtime.after(CREDENTIALS_TIMEOUT_MS, late);
      answer.then(resolve, reject).finally(cancel);
    });
  }

  private lane(lane: Lane, tls: ClusterTls): Dispatcher {
    if (this.closed) throw new Error("the transport is closed");
    if (this.pools !== undefined && !sameTls(this.pools.tls, tls)) {
      // A renewed client certificate or CA: new connections from now on, the old ones end with what they carry.
      for (const pool of Object.values(this.pools.lanes)) pool.close().catch(() => undefined);
      this.pools = undefined;
    }
    this.pools ??= {
      tls,
      lanes: {
        call: this.open(tls, this.options.connectionsMax ?? 16),
        urgent: this.open(tls, URGENT_CONNECTIONS),
        watch: this.open(tls, WATCH_CONNECTIONS),
      },
    };
    return this.pools.lanes[lane];
  }

  private open(tls: ClusterTls, connections: number): Dispatcher {
    const connect = {
      ...tls,
      timeout: CONNECT_TIMEOUT_MS,
      keepAlive: true,
      keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
    };
    const common = { connections, allowH2: false, pipelining: 1, keepAliveTimeout: KEEP_ALIVE_MS } as const;
    const { proxyUrl } = this.options.access;
    if (proxyUrl !== undefined) return new ProxyAgent({ ...common, uri: proxyUrl, requestTls: connect });
    return new Pool(this.origin, { ...common, connect });
  }
}

function sameTls(left: ClusterTls, right: ClusterTls): boolean {
  return (
    sameBytes(left.ca, right.ca) &&
    sameBytes(left.cert, right.cert) &&
    sameBytes(left.key, right.key) &&
    left.servername === right.servername &&
    left.rejectUnauthorized === right.rejectUnauthorized
  );
}

function sameBytes(left: string | Buffer | undefined, right: string | Buffer | undefined): boolean {
  if (left === undefined || right === undefined) return left === right;
  return Buffer.from(left).equals(Buffer.from(right));
}
