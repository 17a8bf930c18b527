/** What a channel is made of, and what its calls may ask for. */
import type { Runtime } from "../runtime.ts";
import type { LinkSource } from "./connector.ts";
import type { LeaseBook } from "./leases.ts";
import type { Transport } from "./transport.ts";

/** What a channel is made of. */
export interface ChannelOptions {
  readonly endpoints: readonly string[];
  /** Default: the cell's "default" namespace. */
  readonly namespace: string;
  readonly epoch: number;
  readonly deadlineMs: number;
  /**
   * `client`: every mutation carries a registered id and sequence, so a retry returns the first outcome. `none`: no
   * ids; a mutation whose answer is lost ends with outcome `unknown`.
   */
  readonly identity: "client" | "none";
  /** Requests that may be outstanding, at most 65,536. */
  readonly requestsMax: number;
  /** Their keys, values and operations in bytes. */
  readonly pendingBytesMax: number;
  readonly transport: Transport;
  readonly runtime: Runtime;
}

/** Another place where the streams and the leases are: a thread of their own. */
export interface ChannelElsewhere {
  readonly links: LinkSource;
  readonly leases: LeaseBook;
  /** A request is given up; its answer says what became of it. */
  cancel(id: number, code: "cancelled" | "deadline-exceeded", message: string): void;
}

/** How an operation is sent. */
export interface ExecuteOptions {
  readonly mutation: boolean;
  readonly deadlineMs?: number;
  /** Never attach an identity. */
  readonly anonymous?: boolean;
  /** Hand the answer on as it came: the completion's result is then `{ raw: bytes }`, a view of the frame. */
  readonly raw?: boolean;
}
