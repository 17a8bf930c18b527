import type {
  Failure,
  KeyRange,
  KeyValue,
  RangeFilter,
  RangeOperation,
  RangeResult,
  RangeSort,
  Read,
  ReadOutcome,
  Revision,
} from "../coordinator/index.ts";
import type { UnaryCall } from "../grpc/call.ts";
import { keyAfter } from "../keys.ts";
import { refusal } from "../validation.ts";
import { query } from "./ask.ts";
import type { EtcdContext } from "./context.ts";
import { finish } from "./context.ts";
import { ETCD, statusOf } from "./errors.ts";
import { keyValueBytes, writeKeyValues, writeRangeFields } from "./wire/encode-kv.ts";
import type { EtcdRange } from "./wire/decode-kv.ts";

/** Bytes of all long answers that are in memory, put together or being sent. */
export class AnswerBudget {
  used = 0;
  readonly most: number;

  constructor(most: number) {
    this.most = most;
  }
}

interface Gathered {
  readonly revision: Revision;
  readonly count: number;
  readonly kvs: readonly KeyValue[];
}

/**
 * Serves ranges of any size: etcd's clients expect the whole answer, so what the coordinator cuts is read on at the same
 * revision, slice by slice.
 */
export class RangeReader {
  private readonly context: EtcdContext;
  private readonly budget: AnswerBudget;

  constructor(context: EtcdContext) {
    this.context = context;
    this.budget = new AnswerBudget(context.doorLimits.rangeAnswersBytesMax);
  }

  serve(call: UnaryCall, namespace: string, range: EtcdRange): void {
    new Reading(this.context, this.budget, { call, namespace, range }).start();
  }

  /** Reads on what a transaction's answer lacks. @param deliver with the keys after those that are there */
  complete(
    call: UnaryCall,
    namespace: string,
    part: { readonly operation: RangeOperation; readonly result: RangeResult },
    deliver: (rest: readonly KeyValue[] | Failure) => void,
  ): void {
    const { operation, result } = part;
    const range: EtcdRange = { operation, serializable: true };
    new Reading(this.context, this.budget, { call, namespace, range }).rest(result, deliver);
  }
}

/** One range on its way. */
class Reading {
  private readonly context: EtcdContext;
  private readonly budget: AnswerBudget;
  private readonly call: UnaryCall;
  private readonly namespace: string;
  private readonly operation: RangeOperation;
  private readonly serializable: boolean;
  /** What this answer holds of the budget. */
  private held = 0;

  constructor(
    context: EtcdContext,
    budget: AnswerBudget,
    {
      call,
      namespace,
      range,
    }: { readonly call: UnaryCall; readonly namespace: string; readonly range: EtcdRange },
  ) {
    this.context = context;
    this.budget = budget;
    this.call = call;
    this.namespace = namespace;
    this.operation = range.operation;
    this.serializable = range.serializable;
  }

  start(): void {
    const consistency = this.serializable ? "serializable" : "linearizable";
    this.read(this.firstPage(), { consistency }, (outcome) => {
      if (!outcome.ok) {
        this.refused(outcome.failure);
        return;
      }
      const result = outcome.result as RangeResult;
      if (!this.isCut(result)) {
        writeRangeFields(this.context.writer, result);
        this.call.respond(finish(this.context, result.revision));
        return;
      }
      if (this.isOrdered()) this.gatherAll(result.revision);
      else this.readOn(result);
    });
  }

  rest(result: RangeResult, deliver: (rest: readonly KeyValue[] | Failure) => void): void {
    const rest: KeyValue[] = [];
    this.call.onClose(() => this.release());
    this.pages(
      { after: result.kvs.at(-1)?.key, left: this.left(result.kvs.length), revision: this.at(result) },
      (page) => rest.push(...page),
      (failure) => deliver(failure ?? rest),
    );
  }

  /** A page is never larger than the client asked for. */
  private firstPage(): RangeOperation {
    const { operation, context } = this;
    if (operation.countOnly === true || operation.range.rangeEnd === undefined || this.isOrdered()) {
      return operation;
    }
    const limit = Math.min(operation.limit ?? Infinity, context.doorLimits.rangePageKeys);
    return { ...operation, limit };
  }

  private isOrdered(): boolean {
    return this.operation.sort !== undefined || this.operation.filter !== undefined;
  }

  /** Something other than the client's own limit ended the answer early. */
  private isCut({ more, kvs }: RangeResult): boolean {
    const { limit } = this.operation;
    return more && (limit === undefined || kvs.length < limit);
  }

  private left(got: number): number {
    return (this.operation.limit ?? Infinity) - got;
  }

  /** What a later page must be read at to belong to the same answer. */
  private at(result: RangeResult): Revision {
    return this.operation.revision ?? result.revision;
  }

  /** A sort or filter that the coordinator refused for its size is done here, on all keys. */
  private refused(failure: Failure): void {
    if (failure.code === "too-many-keys" && this.isOrdered()) this.gatherAll(undefined);
    else this.call.fail(statusOf(failure));
  }

  /** A later page failed. The revision of a client that asked for none was compacted under it: it may try again. */
  private lost(failure: Failure): void {
    const overtaken = failure.code === "compacted" && this.operation.revision === undefined;
    this.call.fail(overtaken ? ETCD.timedOut : statusOf(failure));
  }

  /** Sends on what is there as encoded pieces: keys and values are not kept twice. */
  private readOn(first: RangeResult): void {
    const { writer } = this.context;
    const pieces: Buffer[] = [];
    const revision = this.at(first);
    let got = 0;
    const add = (kvs: readonly KeyValue[]): void => {
      got += kvs.length;
      writeKeyValues(writer, kvs);
      pieces.push(writer.finish());
    };
    this.call.onClose(() => this.release());
    if (!this.hold(first.kvs)) return;
    add(first.kvs);
    this.pages(
      { after: first.kvs.at(-1)?.key, left: this.left(got), revision },
      (page) => add(page),
      (failure) => {
        if (failure !== undefined) {
          this.lost(failure);
          return;
        }
        // Beyond what the coordinator counts, a complete answer knows better.
        const complete = this.operation.limit === undefined || got < this.operation.limit;
        const count = complete ? got : Math.max(first.count, got);
        writeRangeFields(writer, { kvs: [], more: count > got, count });
        pieces.unshift(finish(this.context, first.revision));
        this.call.respond(pieces);
      },
    );
  }

  /** Reads the whole range in key order, then sorts and filters it. `revision` undefined: the newest. */
  private gatherAll(revision: Revision | undefined): void {
    const { range } = this.operation;
    const first: RangeOperation = {
      kind: "range",
      range,
      limit: this.context.doorLimits.rangePageKeys,
      ...(this.operation.revision === undefined ? {} : { revision: this.operation.revision }),
    };
    this.call.onClose(() => this.release());
    const consistency = this.serializable || revision !== undefined ? "serializable" : "linearizable";
    this.read(first, { consistency, uncounted: true }, (outcome) => {
      if (!outcome.ok) {
        this.call.fail(statusOf(outcome.failure));
        return;
      }
      const result = outcome.result as RangeResult;
      if (!this.hold(result.kvs)) return;
      const kvs = [...result.kvs];
      const after = result.more ? result.kvs.at(-1)?.key : undefined;
      if (after === undefined) {
        this.answerOrdered({ revision: result.revision, count: kvs.length, kvs });
        return;
      }
      this.pages(
        { after, left: Infinity, revision: this.at(result) },
        (page) => kvs.push(...page),
        (failure) => {
          if (failure !== undefined) this.lost(failure);
          else this.answerOrdered({ revision: result.revision, count: kvs.length, kvs });
        },
      );
    });
  }

  private answerOrdered({ revision, count, kvs }: Gathered): void {
    const { limit, sort, filter, keysOnly, reverse } = this.operation;
    let chosen = kvs.filter((kv) => passes(kv, filter));
    if (reverse === true) chosen.reverse();
    if (sort !== undefined) chosen.sort((a, b) => order(a, b, sort));
    const more = limit !== undefined && chosen.length > limit;
    if (more) chosen = chosen.slice(0, limit);
    if (keysOnly === true) chosen = chosen.map((kv) => ({ ...kv, value: NO_VALUE }));
    writeRangeFields(this.context.writer, { kvs: chosen, more, count });
    this.call.respond(finish(this.context, revision));
  }

  /** Page after page in the range's direction; `done` once, with what went wrong or nothing. */
  private pages(
    from: { readonly after: Uint8Array | undefined; readonly left: number; readonly revision: Revision },
    take: (kvs: readonly KeyValue[]) => void,
    done: (failure: Failure | undefined) => void,
  ): void {
    const { after, left, revision } = from;
    if (after === undefined || left <= 0) {
      done(undefined);
      return;
    }
    const { range } = this.operation;
    // What is sorted here is read in key order, with its values.
    const asAsked = !this.isOrdered();
    const reverse = asAsked && this.operation.reverse === true;
    const page: RangeOperation = {
      kind: "range",
      range: reverse ? { key: range.key, rangeEnd: after } : rangeAfter(range, after),
      revision,
      limit: Math.min(left, this.context.doorLimits.rangePageKeys),
      keysOnly: asAsked && this.operation.keysOnly === true,
      reverse,
    };
    this.read(page, LATER_PAGE, (outcome) => {
      if (!outcome.ok) {
        done(outcome.failure);
        return;
      }
      const { kvs, more } = outcome.result as RangeResult;
      if (!this.hold(kvs)) return;
      take(kvs);
      const next = more ? kvs.at(-1)?.key : undefined;
      this.pages({ after: next, left: left - kvs.length, revision }, take, done);
    });
  }

  private read(
    operation: RangeOperation,
    how: Pick<Read, "consistency" | "uncounted">,
    deliver: (outcome: ReadOutcome) => void,
  ): void {
    query(this.context, this.call, { namespace: this.namespace, operation, ...how }, (outcome) => {
      // Nobody waits for the rest.
      if (!this.call.cancelled) deliver(outcome);
      else deliver({ ok: false, failure: refusal("deadline-exceeded", "the caller went away") });
    });
  }

  /** Counts keys in. @returns false when the answer became too large; the call has been told */
  private hold(kvs: readonly KeyValue[]): boolean {
    let bytes = 0;
    for (const kv of kvs) bytes += keyValueBytes(kv);
    this.held += bytes;
    this.budget.used += bytes;
    const { rangeAnswerBytesMax } = this.context.doorLimits;
    if (this.held <= rangeAnswerBytesMax && this.budget.used <= this.budget.most) return true;
    this.call.fail(ETCD.tooManyRequests);
    return false;
  }

  private release(): void {
    this.budget.used -= this.held;
    this.held = 0;
  }
}

/** At a revision that this member has, and whose keys have been counted. */
const LATER_PAGE = { consistency: "serializable", uncounted: true } as const;
const NO_VALUE = new Uint8Array(0);

function rangeAfter({ rangeEnd }: KeyRange, after: Uint8Array): KeyRange {
  const key = keyAfter(after);
  return rangeEnd === undefined ? { key } : { key, rangeEnd };
}

function passes(kv: KeyValue, filter: RangeFilter = {}): boolean {
  const { minModRevision = 0, maxModRevision = Infinity } = filter;
  const { minCreateRevision = 0, maxCreateRevision = Infinity } = filter;
  return (
    kv.modRevision >= minModRevision &&
    kv.modRevision <= maxModRevision &&
    kv.createRevision >= minCreateRevision &&
    kv.createRevision <= maxCreateRevision
  );
}

function order(a: KeyValue, b: KeyValue, { target, descending }: RangeSort): number {
  const sign = descending === true ? -1 : 1;
  switch (target) {
    case "version":
      return sign * (a.version - b.version);
    case "create-revision":
      return sign * (a.createRevision - b.createRevision);
    case "mod-revision":
      return sign * (a.modRevision - b.modRevision);
    case "value":
      return sign * Buffer.compare(a.value, b.value);
  }
}
