import { randomInt } from "node:crypto";
import type { Coordinator, FailureCode, Limits } from "../coordinator/index.ts";
import { LIMITS } from "../coordinator/index.ts";
import { GrpcCode } from "../grpc/call.ts";
import type { GrpcMethod, GrpcService, GrpcStatus, StreamCall, UnaryCall } from "../grpc/call.ts";
import type { DoorLog } from "../log.ts";
import { NO_LOG } from "../log.ts";
import { DEFAULT_NAMESPACE, refusal, validateNamespace } from "../validation.ts";
import type { ChannelContext } from "./channel.ts";
import { Channel } from "./channel.ts";
import type { WireExecute } from "./decode-frame.ts";
import { FrameDecoder } from "./decode-frame.ts";
import { Dispatcher } from "./dispatch.ts";
import { encodeExecuteResponse, encodeInfo } from "./encode-info.ts";
import { EventEncoder } from "./event-encoder.ts";
import { LeaseInterest } from "./lease-interest.ts";
import type { NativeDoorLimits } from "./limits.ts";
import { NATIVE_DOOR_LIMITS } from "./limits.ts";
import type { AnyOutcome } from "./outbox.ts";
import { MalformedError, ProtoReader } from "./reader.ts";
import { ReverseWriter } from "./writer.ts";

export interface NativeDoorOptions {
  readonly coordinator: Coordinator;
  /** Default: {@link LIMITS}. */
  readonly limits?: Limits;
  /** Overrides of {@link NATIVE_DOOR_LIMITS}. */
  readonly doorLimits?: Partial<NativeDoorLimits>;
  readonly log?: DoorLog;
}

/** Figures for metrics. */
export interface NativeDoorStats {
  readonly streams: number;
  readonly watches: number;
  readonly leaseInterests: number;
  readonly unaryInFlight: number;
}

/** The native protocol over one coordinator: give it to `startGrpcServer`. */
export interface NativeDoor extends GrpcService {
  /** Serves a channel whatever carries it; what the service's `Channel` does. */
  readonly openChannel: (call: StreamCall) => void;
  stats(): NativeDoorStats;
  /** Ends every channel with UNAVAILABLE (`shutting-down`) and refuses new ones. */
  close(): void;
}

/** Trailing metadata that carries the stable code of a refused call. */
export const CODE_METADATA = "lockstep-code";
export const RETRY_AFTER_METADATA = "lockstep-retry-after-ms";

const SHUTTING_DOWN: GrpcStatus = {
  code: GrpcCode.UNAVAILABLE,
  details: "the member is shutting down",
  metadata: codeMetadata("shutting-down"),
};

function codeMetadata(code: FailureCode, retryAfterMs?: number): Readonly<Record<string, string>> {
  const metadata = { [CODE_METADATA]: code };
  return retryAfterMs === undefined
    ? metadata
    : { ...metadata, [RETRY_AFTER_METADATA]: String(retryAfterMs) };
}

class Door implements NativeDoor {
  readonly name = "lockstep.v1.Coordination";
  readonly methods: ReadonlyMap<string, GrpcMethod>;
  private readonly coordinator: Coordinator;
  private readonly limits: Limits;
  private readonly doorLimits: NativeDoorLimits;
  private readonly log: DoorLog;
  private readonly context: ChannelContext;
  private readonly channels = new Set<Channel>();
  private readonly unsubscribe: (() => void)[];
  private streams = 0;
  private unaryInFlight = 0;
  private closed = false;

  constructor(options: NativeDoorOptions) {
    const { coordinator, limits = LIMITS, log = NO_LOG } = options;
    this.coordinator = coordinator;
    this.limits = limits;
    this.log = log;
    this.doorLimits = { ...NATIVE_DOOR_LIMITS, ...options.doorLimits };
    const interest = new LeaseInterest(this.doorLimits.leaseInterestsMax);
    this.context = {
      coordinator,
      limits,
      doorLimits: this.doorLimits,
      dispatcher: new Dispatcher(coordinator, limits),
      frames: new FrameDecoder(new ProtoReader(), {
        requestsPerFrameMax: limits.requestsPerFrameMax,
        renewalsPerFrameMax: limits.renewalsPerFrameMax,
        watchEntriesPerFrameMax: this.doorLimits.watchEntriesPerFrameMax,
      }),
      events: new EventEncoder(this.doorLimits.frameTargetBytes),
      writer: new ReverseWriter(),
      interest,
      hashSeed: randomInt(2 ** 32),
      onClosed: (channel) => {
        this.channels.delete(channel);
        interest.listenerClosed(channel);
      },
    };
    this.unsubscribe = [
      coordinator.onLeaseEnd((end) => interest.ended(end)),
      coordinator.onLeaderChange(() => this.announceLeader()),
    ];
    this.methods = new Map<string, GrpcMethod>([
      ["Channel", { kind: "stream", serve: this.openChannel }],
      ["Execute", { kind: "unary", serve: (call, request) => this.execute(call, request) }],
      ["Info", { kind: "unary", serve: (call) => call.respond(encodeInfo(this.coordinator.info())) }],
    ]);
  }

  stats(): NativeDoorStats {
    let watches = 0;
    for (const channel of this.channels) watches += channel.watchCount;
    return {
      streams: this.streams,
      watches,
      leaseInterests: this.context.interest.size,
      unaryInFlight: this.unaryInFlight,
    };
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    for (const unsubscribe of this.unsubscribe) unsubscribe();
    for (const channel of [...this.channels]) channel.cut(SHUTTING_DOWN);
  }

  readonly openChannel = (call: StreamCall): void => {
    if (this.closed) {
      call.fail(SHUTTING_DOWN);
      return;
    }
    const { streamsMax, overloadRetryAfterMs } = this.doorLimits;
    if (this.streams >= streamsMax) {
      this.log("warn", "refused a channel: too many streams", { streamsMax });
      call.fail({
        code: GrpcCode.RESOURCE_EXHAUSTED,
        details: `the member has ${streamsMax} streams, the most it may have`,
        metadata: codeMetadata("too-many-streams", overloadRetryAfterMs),
      });
      return;
    }
    this.streams += 1;
    // A client that does not take its last bytes counts until they are gone.
    call.onClose(() => {
      this.streams -= 1;
    });
    const channel = new Channel(call, this.context);
    this.channels.add(channel);
    channel.info(encodeInfo(this.coordinator.info()));
  };

  private announceLeader(): void {
    const encoded = encodeInfo(this.coordinator.info());
    for (const channel of this.channels) channel.info(encoded);
  }

  private execute(call: UnaryCall, request: Buffer): void {
    let message: WireExecute;
    try {
      message = this.context.frames.decodeExecute(request);
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      call.fail({ code: GrpcCode.INVALID_ARGUMENT, details: `malformed request: ${error.message}` });
      return;
    }
    const answer = (outcome: AnyOutcome): void => {
      call.respond(encodeExecuteResponse(this.context.writer, outcome));
    };
    const namespace = message.namespace === "" ? DEFAULT_NAMESPACE : message.namespace;
    const { unaryInFlightMax, overloadRetryAfterMs } = this.doorLimits;
    const failure =
      this.unaryInFlight >= unaryInFlightMax
        ? refusal("overloaded", `the member has ${unaryInFlightMax} unanswered calls`, overloadRetryAfterMs)
        : validateNamespace(namespace, this.limits);
    if (failure !== undefined) {
      answer({ ok: false, failure });
      return;
    }
    this.unaryInFlight += 1;
    const scope = { bytes: request, namespace, epoch: message.epoch };
    this.context.dispatcher.run(scope, message.request, (outcome) => {
      this.unaryInFlight -= 1;
      answer(outcome);
    });
  }
}

/** Opens the native door over a coordinator. It serves when handed to `startGrpcServer`. */
export function createNativeDoor(options: NativeDoorOptions): NativeDoor {
  return new Door(options);
}
