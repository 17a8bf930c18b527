import type { LeaderHint } from "../coordinator/index.ts";
import type { GrpcService, StreamCall } from "../grpc/call.ts";
import type { EtcdContext } from "./context.ts";
import { admitStream, refuseStream } from "./context.ts";
import { ETCD } from "./errors.ts";
import { EtcdEventEncoder } from "./wire/watch-codec.ts";
import { WatchStream } from "./watch-stream.ts";
import type { WatchStreamContext } from "./watch-stream.ts";

/** Metadata by which a client asks to be cut off from a member that has no leader. */
const HAS_LEADER = "hasleader";

/** `etcdserverpb.Watch`, with all its streams. */
export class WatchService {
  readonly service: GrpcService;
  private readonly context: EtcdContext;
  private readonly streamContext: WatchStreamContext;
  private readonly streams = new Set<WatchStream>();
  /**
   * There has been no leader for three election timeouts. A short time without one, as when this member has just started
   * or an election is on, is nothing that a client must be told: etcd's give a watch up when they are.
   */
  private isLeaderless = false;
  /** Those whose clients want to know a leader. */
  private readonly wantingLeader = new Set<WatchStream>();

  constructor(context: EtcdContext) {
    this.context = context;
    this.streamContext = {
      ...context,
      encoder: new EtcdEventEncoder(context.doorLimits.watchAnswerBytes),
      waiting: { bytes: 0 },
    };
    this.service = {
      name: "etcdserverpb.Watch",
      methods: new Map([["Watch", { kind: "stream", serve: (call: StreamCall) => this.open(call) }]]),
    };
  }

  get watchCount(): number {
    let watches = 0;
    for (const stream of this.streams) watches += stream.watchCount;
    return watches;
  }

  get streamCount(): number {
    return this.streams.size;
  }

  /** `undefined`: for three election timeouts there was none. */
  leaderChanged(leader: LeaderHint | undefined): void {
    this.isLeaderless = leader === undefined;
    if (!this.isLeaderless) return;
    for (const stream of this.wantingLeader) stream.fail(ETCD.noLeader);
  }

  /** Ends every stream, but no watch: a cancelled watch would not be taken up again by its client. */
  close(): void {
    for (const stream of [...this.streams]) stream.fail(ETCD.stopped);
  }

  private open(call: StreamCall): void {
    const namespace = admitStream(this.context, call, this.streams.size);
    if (namespace === undefined) return;
    const wantsLeader = call.header(HAS_LEADER) === "true";
    if (wantsLeader && this.isLeaderless) {
      refuseStream(call, ETCD.noLeader);
      return;
    }
    const stream = new WatchStream(call, this.streamContext, namespace);
    this.streams.add(stream);
    if (wantsLeader) this.wantingLeader.add(stream);
    call.onClose(() => {
      stream.close();
      this.streams.delete(stream);
      this.wantingLeader.delete(stream);
    });
  }
}
