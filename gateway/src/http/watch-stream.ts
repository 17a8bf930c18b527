import type { ServerResponse } from "node:http";
import type {
  Failure,
  Revision,
  WatchEnd,
  WatchEvent,
  WatchHandle,
  WatchSink,
} from "../coordinator/index.ts";
import type { HttpDoorLimits } from "./limits.ts";
import type { Change, Json } from "./json.ts";
import { changesOf } from "./json.ts";

/** How a stream looks on the wire. `revision`: everything up to it is covered once the message is read. */
export interface StreamFormat {
  readonly contentType: string;
  message(kind: "created" | "change" | "progress" | "end", body: Json, revision: number | undefined): string;
}

export const SERVER_SENT_EVENTS: StreamFormat = {
  contentType: "text/event-stream",
  message: (kind, body, revision) => {
    const id = revision === undefined ? "" : `id: ${revision}\n`;
    return `event: ${kind}\n${id}data: ${JSON.stringify(body)}\n\n`;
  },
};

export const NDJSON: StreamFormat = {
  contentType: "application/x-ndjson",
  message: (kind, body) => `${JSON.stringify({ kind, ...body })}\n`,
};

/** The end of a watch as JSON: why, and where to go on. */
export function endJson(end: WatchEnd): Json {
  switch (end.kind) {
    case "compacted":
      return { reason: "compacted", compactRevision: end.compactRevision };
    case "slow-consumer":
      return { reason: "slow-consumer", resumeRevision: end.resumeRevision };
    case "cancelled": {
      const { code, message, retryAfterMs } = end.failure;
      return { reason: code, detail: message, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
    }
  }
}

/** A client that got the end of its stream and does not take it is disconnected after this. */
const END_GRACE_MS = 5_000;

/**
 * A watch over a response that stays open, one message per revision. A client that does not read holds the watch
 * back; what was already accepted for it is bounded, and above the bound its watch ends with `slow-consumer`.
 */
export class WatchStream implements WatchSink {
  private readonly response: ServerResponse;
  private readonly format: StreamFormat;
  private readonly limits: HttpDoorLimits;
  private readonly onClosed: () => void;
  private handle: WatchHandle | undefined;
  private timer: NodeJS.Timeout | undefined;
  private full = false;
  private closed = false;
  private covered = 0;

  constructor(
    response: ServerResponse,
    format: StreamFormat,
    { limits, onClosed }: { limits: HttpDoorLimits; onClosed: () => void },
  ) {
    this.response = response;
    this.format = format;
    this.limits = limits;
    this.onClosed = onClosed;
  }

  /** Sends the head. `startRevision` is the first revision that the client asked for. */
  start(handle: WatchHandle, startRevision: number | undefined): void {
    const { response } = this;
    this.handle = handle;
    response.on("drain", () => this.drained());
    response.on("close", () => this.close());
    response.writeHead(200, {
      "content-type": this.format.contentType,
      "cache-control": "no-store",
      "x-accel-buffering": "no",
      "lockstep-revision": String(handle.createdRevision),
    });
    this.covered = (startRevision ?? handle.createdRevision + 1) - 1;
    this.write(this.format.message("created", { revision: handle.createdRevision }, this.covered));
    this.timer = setInterval(() => handle.requestProgress(), this.limits.progressIntervalMs);
    this.timer.unref();
    // Gone before it was listened to.
    if (response.destroyed) this.close();
  }

  events(events: readonly WatchEvent[], revision: Revision): boolean {
    if (this.closed) return true;
    for (const change of changesOf(events)) {
      this.covered = change.revision;
      this.write(
        this.format.message("change", { revision: change.revision, events: change.events }, change.revision),
      );
    }
    this.covered = revision;
    if (this.response.writableLength > this.limits.watchBufferBytesMax) {
      this.handle?.cancel();
      this.end({ kind: "slow-consumer", resumeRevision: (revision + 1) as Revision });
    }
    return !this.full;
  }

  progress(revision: Revision): void {
    if (this.closed) return;
    this.covered = Math.max(this.covered, revision);
    this.write(this.format.message("progress", { revision: this.covered }, this.covered));
  }

  end(end: WatchEnd): void {
    if (this.closed) return;
    this.write(this.format.message("end", endJson(end), undefined));
    this.close();
    this.response.end();
    setTimeout(() => this.response.destroy(), END_GRACE_MS).unref();
  }

  /** The door closes. */
  shutDown(failure: Failure): void {
    this.handle?.cancel();
    this.end({ kind: "cancelled", failure });
  }

  private write(text: string): void {
    if (!this.response.write(text)) this.full = true;
  }

  private drained(): void {
    if (!this.full || this.closed) return;
    this.full = false;
    this.handle?.resume();
  }

  private close(): void {
    if (this.closed) return;
    this.closed = true;
    clearInterval(this.timer);
    this.handle?.cancel();
    this.onClosed();
  }
}

/** What a long poll ends with. */
export type PollEnd =
  | { readonly kind: "changes"; readonly changes: readonly Change[]; readonly revision: number }
  | { readonly kind: "watch-ended"; readonly end: WatchEnd };

/** A watch that answers once: with the first changes, or with none when the wait is over. */
export class WatchPoll implements WatchSink {
  readonly done: Promise<PollEnd>;
  private settle: (end: PollEnd) => void = () => undefined;
  private handle: WatchHandle | undefined;
  private timer: NodeJS.Timeout | undefined;
  private covered = 0;

  constructor() {
    this.done = new Promise((resolve) => (this.settle = resolve));
  }

  start(handle: WatchHandle, startRevision: number | undefined, waitMs: number): void {
    this.handle = handle;
    this.covered = (startRevision ?? handle.createdRevision + 1) - 1;
    // So that a wait without changes still moves on, past what cannot concern this watch.
    handle.requestProgress();
    this.timer = setTimeout(() => this.finish(), waitMs);
  }

  /** Answers now with what there is: nothing. */
  finish(): void {
    this.close({ kind: "changes", changes: [], revision: this.covered });
  }

  events(events: readonly WatchEvent[], revision: Revision): boolean {
    this.close({ kind: "changes", changes: changesOf(events), revision });
    return true;
  }

  progress(revision: Revision): void {
    this.covered = Math.max(this.covered, revision);
  }

  end(end: WatchEnd): void {
    this.close({ kind: "watch-ended", end });
  }

  private close(end: PollEnd): void {
    clearTimeout(this.timer);
    this.handle?.cancel();
    this.settle(end);
  }
}
