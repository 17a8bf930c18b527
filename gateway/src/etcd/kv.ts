import type {
  Failure,
  RangeOperation,
  RangeResult,
  ReadResult,
  Revision,
  TxnCommand,
  TxnOperationResult,
  TxnResult,
  WriteResult,
} from "../coordinator/index.ts";
import { isReadOnly } from "../coordinator/index.ts";
import type { GrpcService, UnaryCall } from "../grpc/call.ts";
import type { ProtoReader } from "../native/reader.ts";
import { mutate, read } from "./ask.ts";
import type { EtcdContext, Serve } from "./context.ts";
import { finish, unary } from "./context.ts";
import { ETCD, statusOf } from "./errors.ts";
import { RangeReader } from "./range-reader.ts";
import { readCompaction, readDelete, readPut, readRange, readTxn } from "./wire/decode-kv.ts";
import { writeDeleteFields, writePutFields, writeTxnFields } from "./wire/encode-kv.ts";

/** `etcdserverpb.KV`. */
export function kvService(context: EtcdContext): GrpcService {
  const kv = new Kv(context);
  const serve = (method: Serve): ReturnType<typeof unary> => unary(context, method);
  return {
    name: "etcdserverpb.KV",
    methods: new Map([
      ["Range", serve((call, request, namespace) => kv.range(call, request, namespace))],
      ["Put", serve((call, request, namespace) => kv.put(call, request, namespace))],
      ["DeleteRange", serve((call, request, namespace) => kv.deleteRange(call, request, namespace))],
      ["Txn", serve((call, request, namespace) => kv.txn(call, request, namespace))],
      ["Compact", serve((call, request, namespace) => kv.compact(call, request, namespace))],
    ]),
  };
}

class Kv {
  private readonly context: EtcdContext;
  private readonly ranges: RangeReader;

  constructor(context: EtcdContext) {
    this.context = context;
    this.ranges = new RangeReader(context);
  }

  range(call: UnaryCall, request: Buffer, namespace: string): void {
    this.ranges.serve(call, namespace, readRange(this.at(request)));
  }

  put(call: UnaryCall, request: Buffer, namespace: string): void {
    const { context } = this;
    mutate(context, call, { namespace, operation: readPut(this.at(request)) }, (result) => {
      if (result.kind !== "put") return;
      writePutFields(context.writer, result);
      call.respond(finish(context, result.revision));
    });
  }

  deleteRange(call: UnaryCall, request: Buffer, namespace: string): void {
    const { context } = this;
    mutate(context, call, { namespace, operation: readDelete(this.at(request)) }, (result) => {
      if (result.kind !== "delete") return;
      writeDeleteFields(context.writer, result);
      call.respond(finish(context, result.revision));
    });
  }

  txn(call: UnaryCall, request: Buffer, namespace: string): void {
    const { context } = this;
    const { txn, serializable } = readTxn(this.at(request), context.limits.txnOperationsMax);
    const deliver = (result: WriteResult | ReadResult): void => {
      if (result.kind !== "txn") return;
      const cut = cutRanges(txn, result, []);
      if (cut.length === 0) this.answerTxn(call, result);
      else this.complete(call, namespace, { result, cut });
    };
    if (isReadOnly(txn)) {
      const consistency = serializable ? "serializable" : "linearizable";
      read(context, call, { namespace, operation: { kind: "txn-read", txn }, consistency }, deliver);
    } else {
      mutate(context, call, { namespace, operation: txn }, deliver);
    }
  }

  /** `physical` makes no difference: what is forgotten is given back in the background, soon. */
  compact(call: UnaryCall, request: Buffer, namespace: string): void {
    const { context } = this;
    const revision = readCompaction(this.at(request)) as Revision;
    // There is always something older than the oldest revision: etcd's answer to a point that is passed already.
    if (revision < 1) {
      call.fail(ETCD.compacted);
      return;
    }
    mutate(context, call, { namespace, operation: { kind: "compact", revision } }, () => {
      call.respond(finish(context, context.coordinator.info().revision));
    });
  }

  private at(request: Buffer): ProtoReader {
    const { reader } = this.context;
    reader.reset(request, 0, request.length);
    return reader;
  }

  private answerTxn(call: UnaryCall, result: TxnResult): void {
    writeTxnFields(this.context.writer, result);
    call.respond(finish(this.context, result.revision));
  }

  /** One after the other: such a transaction is rare, and its answer is large. */
  private complete(
    call: UnaryCall,
    namespace: string,
    { result, cut }: { readonly result: TxnResult; readonly cut: CutRange[] },
  ): void {
    const next = cut.pop();
    if (next === undefined) {
      this.answerTxn(call, result);
      return;
    }
    this.ranges.complete(call, namespace, next, (rest) => {
      if (isFailure(rest)) {
        call.fail(statusOf(rest));
        return;
      }
      const { limit = Infinity } = next.operation;
      const kvs = [...next.result.kvs, ...rest];
      next.replace({ ...next.result, kvs, more: kvs.length >= limit && next.result.count > kvs.length });
      this.complete(call, namespace, { result, cut });
    });
  }
}

function isFailure(rest: readonly unknown[] | Failure): rest is Failure {
  return !Array.isArray(rest);
}

interface CutRange {
  readonly operation: RangeOperation;
  readonly result: RangeResult;
  readonly replace: (whole: RangeResult) => void;
}

/** Ranges of a transaction that something other than their limit cut, in transactions inside it too. */
function cutRanges(txn: TxnCommand, result: TxnResult, found: CutRange[]): CutRange[] {
  const branch = result.succeeded ? txn.success : txn.failure;
  const responses = result.responses as TxnOperationResult[];
  for (const [i, response] of responses.entries()) {
    const operation = branch[i];
    if (response.kind === "txn" && operation?.kind === "txn") cutRanges(operation, response, found);
    if (response.kind !== "range" || operation?.kind !== "range" || !response.more) continue;
    const { limit = Infinity, sort, filter } = operation;
    // Sorted and filtered ones cannot be read on by key.
    if (response.kvs.length >= limit || sort !== undefined || filter !== undefined) continue;
    found.push({
      operation,
      result: response,
      replace: (whole) => {
        responses[i] = whole;
      },
    });
  }
  return found;
}
