/** One request on its way to an apiserver. */
export interface ApiRequest {
  readonly method: "GET" | "POST" | "PATCH" | "DELETE";
  /** With the query. */
  readonly path: string;
  readonly contentType?: string;
  readonly body?: string;
  readonly lane: Lane;
  /** Ends the request wherever it is; its reason becomes the rejection. Whoever sends sets a deadline by it. */
  readonly signal: AbortSignal;
}

/**
 * Connections of one lane are never taken by another: watches cannot starve calls, and calls that hang cannot starve
 * the renewal of a lease (`urgent`).
 */
export type Lane = "call" | "urgent" | "watch";

export interface ApiResponse {
  readonly status: number;
  /** The Retry-After header. */
  readonly retryAfter: string | undefined;
  /** To be read to its end or left by breaking out of the loop: either frees the connection. */
  readonly body: AsyncIterable<Uint8Array>;
}

/** The way to one apiserver. Rejects with whatever went wrong; an HTTP status of any kind is an answer. */
export interface Transport {
  send(request: ApiRequest): Promise<ApiResponse>;
  /** Ends all connections, with requests in flight. */
  close(): Promise<void>;
}
