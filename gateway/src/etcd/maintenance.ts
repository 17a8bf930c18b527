import { createHash } from "node:crypto";
import { crc32 } from "node:zlib";
import { etcd } from "@lockstep/proto/etcd";
import type { KeyValue, RangeResult, Revision } from "../coordinator/index.ts";
import { GrpcCode } from "../grpc/call.ts";
import type { GrpcService, ServerCall } from "../grpc/call.ts";
import { GrpcError } from "../grpc/error.ts";
import type { AnswerStream } from "../grpc/service-of.ts";
import { serviceOf } from "../grpc/service-of.ts";
import { keyAfter } from "../keys.ts";
import { assertMayChange, memberIdOf, refusalOf } from "./cluster.ts";
import type { EtcdContext } from "./context.ts";
import { headerOf } from "./context.ts";
import type { EtcdControl } from "./control.ts";
import { ControlError } from "./control.ts";
import { ETCD, lockstepStatus, statusOf } from "./errors.ts";
import { writeKeyValue } from "./wire/encode-kv.ts";

/** What clients decide by whether they may use features: the etcd release whose API this is. */
export const ETCD_VERSION = "3.6.0";
const DIGEST_BYTES_MULTIPLE = 512;
const HASH_PAGE_KEYS = 1_000;
const SHA256_BYTES = 32;

/** `etcdserverpb.Maintenance`. */
export function maintenanceService(context: EtcdContext, control: EtcdControl): GrpcService {
  const maintenance = new Maintenance(context, control);
  return serviceOf(etcd.MaintenanceService, {
    alarm: (request: etcd.AlarmRequest) => maintenance.alarm(request),
    status: () => maintenance.status(),
    // Space that nothing uses is given back without being asked.
    defragment: () => ({ header: headerOf(context, 0) }),
    hash: (_request: etcd.HashRequest, call: ServerCall) => maintenance.hash(call),
    hashKv: (request: etcd.HashKVRequest, call: ServerCall) => maintenance.hashKv(request, call),
    snapshot: (_request: etcd.SnapshotRequest, stream: AnswerStream<etcd.SnapshotResponse>) =>
      maintenance.snapshot(stream),
    moveLeader: (request: etcd.MoveLeaderRequest, call: ServerCall) => maintenance.moveLeader(request, call),
    downgrade: () => {
      const text = "a cell's format version is raised by its operator, and never lowered";
      throw new GrpcError(lockstepStatus(GrpcCode.UNIMPLEMENTED, text));
    },
  });
}

class Maintenance {
  private readonly context: EtcdContext;
  private readonly control: EtcdControl;

  constructor(context: EtcdContext, control: EtcdControl) {
    this.context = context;
    this.control = control;
  }

  /** Alarms of a cell are facts, not switches: they end with what they are about. */
  alarm({ action }: etcd.AlarmRequest): etcd.AlarmResponse {
    if (action === etcd.AlarmRequest_AlarmAction.ACTIVATE) {
      throw new GrpcError(
        lockstepStatus(GrpcCode.UNIMPLEMENTED, "an alarm is raised by what it is about, not by a call"),
      );
    }
    return { header: this.header(), alarms: this.alarms().map((alarm) => ({ memberID: this.self, alarm })) };
  }

  status(): etcd.StatusResponse {
    const status = this.control.status();
    const { leader } = this.context.coordinator.info();
    const errors = this.alarms().map((alarm): string =>
      alarm === etcd.AlarmType.NOSPACE ? "alarm:NOSPACE" : "alarm:CORRUPT",
    );
    if (leader === undefined) errors.push(ETCD.noLeader.details);
    return {
      header: this.header(),
      version: ETCD_VERSION,
      dbSize: status.databaseBytes,
      dbSizeInUse: status.databaseBytesInUse,
      dbSizeQuota: status.quotaBytes ?? 0,
      leader: leader?.memberId ?? 0,
      raftIndex: status.lastIndex,
      raftTerm: this.context.facts.term,
      raftAppliedIndex: status.appliedIndex,
      errors,
      isLearner: status.isLearner,
      storageVersion: ETCD_VERSION,
      downgradeInfo: { enabled: false, targetVersion: "" },
    };
  }

  async hash(call: ServerCall): Promise<etcd.HashResponse> {
    const { hash } = await this.digest(call, undefined);
    return { header: this.header(), hash };
  }

  async hashKv({ revision }: etcd.HashKVRequest, call: ServerCall): Promise<etcd.HashKVResponse> {
    const digest = await this.digest(call, revision > 0 ? (revision as Revision) : undefined);
    return { header: this.header(), hash: digest.hash, compactRevision: 0, hashRevision: digest.revision };
  }

  /**
   * The cell's own state, in the form in which members send it to each other, followed by its SHA-256; filled up so that the length is
   * what tools for etcd expect of a snapshot.
   */
  async snapshot(stream: AnswerStream<etcd.SnapshotResponse>): Promise<void> {
    const hash = createHash("sha256");
    let bytes = 0;
    const send = async (blob: Buffer): Promise<boolean> => {
      await stream.write({ header: this.header(), remainingBytes: 0, blob, version: ETCD_VERSION });
      return !stream.cancelled;
    };
    const add = (chunk: Buffer): void => {
      hash.update(chunk);
      bytes += chunk.length;
    };
    await this.control.snapshot(async (chunk) => {
      add(chunk);
      const most = this.context.doorLimits.snapshotBlobBytes;
      for (let at = 0; at < chunk.length; at += most) {
        if (!(await send(chunk.subarray(at, at + most)))) return false;
      }
      return true;
    });
    const rest = (DIGEST_BYTES_MULTIPLE - (bytes % DIGEST_BYTES_MULTIPLE)) % DIGEST_BYTES_MULTIPLE;
    const filling = Buffer.alloc(rest);
    add(filling);
    if (rest > 0) await send(filling);
    const digest = hash.digest();
    if (digest.length === SHA256_BYTES) await send(digest);
  }

  async moveLeader({ targetID }: etcd.MoveLeaderRequest, call: ServerCall): Promise<etcd.MoveLeaderResponse> {
    assertMayChange(this.control, call);
    try {
      await this.control.transferLeadership(memberIdOf(targetID));
    } catch (error) {
      const unknown = error instanceof ControlError && error.code === "unknown-member";
      throw unknown ? new GrpcError(ETCD.badTransferee) : refusalOf(error);
    }
    return { header: this.header() };
  }

  private get self(): number {
    return this.context.facts.memberId;
  }

  private header(): etcd.ResponseHeader {
    return headerOf(this.context, this.context.coordinator.info().revision);
  }

  private alarms(): etcd.AlarmType[] {
    const { spaceLow, diverged } = this.control.status();
    return [...(spaceLow ? [etcd.AlarmType.NOSPACE] : []), ...(diverged ? [etcd.AlarmType.CORRUPT] : [])];
  }

  /** Over all keys of the call's namespace at one revision, page by page: equal on all members. */
  private async digest(
    call: ServerCall,
    asked: Revision | undefined,
  ): Promise<{ readonly hash: number; readonly revision: Revision }> {
    const namespace = this.context.namespaces.of(call);
    const { writer } = this.context;
    let hash = 0;
    let revision = asked;
    let answered = asked;
    for (let key: Uint8Array = new Uint8Array(0); ;) {
      const page = await this.page(namespace, key, revision);
      revision ??= page.revision;
      answered ??= page.revision;
      for (const kv of page.kvs) {
        writeKeyValue(writer, 0x0a, kv);
        hash = crc32(writer.finish(), hash);
      }
      const last: KeyValue | undefined = page.kvs.at(-1);
      if (!page.more || last === undefined || call.cancelled) return { hash, revision: answered };
      key = keyAfter(last.key);
    }
  }

  private page(namespace: string, key: Uint8Array, revision: Revision | undefined): Promise<RangeResult> {
    const range = { key, rangeEnd: new Uint8Array(0) };
    const operation = { kind: "range", range, limit: HASH_PAGE_KEYS } as const;
    return new Promise((resolve, reject) => {
      this.context.coordinator.read(
        {
          namespace,
          epoch: 0,
          consistency: "serializable",
          uncounted: true,
          operation: revision === undefined ? operation : { ...operation, revision },
        },
        (outcome) => {
          if (!outcome.ok) reject(new GrpcError(statusOf(outcome.failure)));
          else if (outcome.result.kind === "range") resolve(outcome.result);
        },
      );
    });
  }
}
