import type {
  Failure,
  KeyRange,
  Revision,
  WatchEnd,
  WatchHandle,
  WatchRequest,
  WatchSink,
} from "../coordinator/index.ts";
import { refusal, validateRange } from "../validation.ts";
import type { Backend, Call } from "./backend.ts";
import { header } from "./backend.ts";
import { revisionHeader } from "./conditions.ts";
import type { Change } from "./json.ts";
import { ProblemError, failureProblem, httpProblem, invalid } from "./problem.ts";
import { prefixEnd } from "../keys.ts";
import { duration, wholeNumber } from "./target.ts";
import type { StreamFormat } from "./watch-stream.ts";
import { NDJSON, SERVER_SENT_EVENTS, WatchPoll, WatchStream } from "./watch-stream.ts";

export const WATCH_PARAMETERS: readonly string[] = [
  "key",
  "prefix",
  "fromRevision",
  "previous",
  "omit",
  "wait",
];

/** All open watches of the door: their bound, and their end when the door closes. */
export class WatchRoute {
  private readonly backend: Backend;
  private readonly streams = new Set<WatchStream>();
  private readonly polls = new Set<WatchPoll>();
  private closing: Failure | undefined;

  constructor(backend: Backend) {
    this.backend = backend;
  }

  get open(): number {
    return this.streams.size + this.polls.size;
  }

  /** `GET /v1/watch` */
  async handle(call: Call): Promise<void> {
    const request = watchRequest(call, this.backend);
    const wait = call.query.text("wait");
    this.admit();
    if (wait !== undefined) {
      await this.poll(call, request, duration(wait, "the query parameter wait"));
      return;
    }
    const format = streamFormat(call.request.headers.accept ?? "");
    if (format === undefined) {
      throw new ProblemError(
        httpProblem("not-acceptable", "accept text/event-stream or application/x-ndjson, or give ?wait=30s"),
      );
    }
    this.stream(call, request, format);
  }

  /** Ends all watches; new ones are refused. */
  close(): void {
    this.closing = refusal("shutting-down", "the member is shutting down");
    for (const stream of [...this.streams]) stream.shutDown(this.closing);
    for (const poll of [...this.polls]) poll.finish();
  }

  private admit(): void {
    if (this.closing !== undefined) throw failureProblem(this.closing);
    const { watchesMax, overloadRetryAfterMs } = this.backend.doorLimits;
    if (this.open >= watchesMax) {
      const message = `the member has ${watchesMax} watches over HTTP, the most it may have`;
      throw failureProblem(refusal("too-many-watches", message, overloadRetryAfterMs));
    }
  }

  private stream(call: Call, request: WatchRequest, format: StreamFormat): void {
    const response = call.reply.raw;
    const stream = new WatchStream(response, format, {
      limits: this.backend.doorLimits,
      onClosed: () => this.streams.delete(stream),
    });
    const handle = this.register(request, stream);
    this.streams.add(stream);
    call.reply.hijack();
    stream.start(handle, request.startRevision);
  }

  private async poll(call: Call, request: WatchRequest, waitMs: number): Promise<void> {
    const { waitMsMax } = this.backend.doorLimits;
    if (waitMs > waitMsMax) throw invalid(`the query parameter wait is above ${waitMsMax} ms`);
    const poll = new WatchPoll();
    const handle = this.register(request, poll);
    this.polls.add(poll);
    const { reply } = call;
    const gone = (): void => poll.finish();
    reply.raw.once("close", gone);
    poll.start(handle, request.startRevision, waitMs);
    const end = await poll.done;
    this.polls.delete(poll);
    reply.raw.off("close", gone);
    const { changes, revision } = end.kind === "changes" ? end : nothingYet(end.end);
    revisionHeader(reply, revision as Revision);
    await reply.header("cache-control", "no-store").send({ changes, revision, next: revision + 1 });
  }

  private register(request: WatchRequest, sink: WatchSink): WatchHandle {
    const handle = this.backend.coordinator.watch(request, sink);
    if ("code" in handle) throw failureProblem(handle);
    return handle;
  }
}

/** A watch that ended before it saw anything. @throws ProblemError unless the client may simply ask again. */
function nothingYet(end: WatchEnd): { readonly changes: readonly Change[]; readonly revision: number } {
  switch (end.kind) {
    case "slow-consumer":
      return { changes: [], revision: end.resumeRevision - 1 };
    case "cancelled":
      throw failureProblem(end.failure);
    case "compacted": {
      const { compactRevision } = end;
      const message = `history before revision ${compactRevision} is gone: read the state, watch from there`;
      throw failureProblem({ ...refusal("compacted", message), compactRevision });
    }
  }
}

function streamFormat(accept: string): StreamFormat | undefined {
  if (accept.includes(SERVER_SENT_EVENTS.contentType)) return SERVER_SENT_EVENTS;
  return accept.includes(NDJSON.contentType) ? NDJSON : undefined;
}

function watchRange({ query }: Call): KeyRange {
  const key = query.bytes("key");
  const prefix = query.bytes("prefix");
  if (key !== undefined && prefix === undefined) return { key };
  if (prefix === undefined || key !== undefined)
    throw invalid("give one of the query parameters key and prefix");
  return { key: prefix, rangeEnd: prefixEnd(prefix) };
}

function watchRequest(call: Call, backend: Backend): WatchRequest {
  const { query, scope } = call;
  const range = watchRange(call);
  const failure = validateRange(range, backend.limits);
  if (failure !== undefined) throw failureProblem(failure);
  const lastEventId = header(call.request, "last-event-id");
  // A reconnecting EventSource repeats its first URL: what it has read since then counts.
  const start =
    lastEventId === undefined || lastEventId === ""
      ? query.number("fromRevision", 1)
      : wholeNumber(lastEventId, { what: "the header Last-Event-ID", least: 0 }) + 1;
  const omit = query.text("omit");
  if (omit !== undefined && omit !== "put" && omit !== "delete") {
    throw invalid("the query parameter omit is put or delete");
  }
  return {
    namespace: scope.namespace,
    epoch: scope.epoch,
    range,
    returnPrevious: query.flag("previous"),
    ...(start === undefined ? {} : { startRevision: start as Revision }),
    ...(omit === undefined ? {} : { omit }),
  };
}
