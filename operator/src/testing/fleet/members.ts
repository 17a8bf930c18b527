import { Metadata, Server, ServerCredentials, status as GrpcStatus } from "@grpc/grpc-js";
import type { sendUnaryData, ServerUnaryCall } from "@grpc/grpc-js";
import { admin } from "@lockstep/proto";
import { randomUUID } from "node:crypto";
import type { Pod, Secret } from "../../api/core.ts";
import { ANNOTATION, LABEL } from "../../api/labels.ts";
import { PORTS } from "../../api/names.ts";
import { bundleHashOf, certificatesOf, fingerprintOf } from "../../certificates/material.ts";
import { readLeaf, readTrust } from "../../certificates/secrets.ts";
import { CellAdminError } from "../../cell/types.ts";
import { RaftCell } from "../raft-cell.ts";

/** One member's program: it answers the admin API, and nothing else. */
export interface Member {
  readonly name: string;
  readonly cellUid: string;
  readonly ip: string;
  readonly version: string;
  readonly disk: Disk;
  readonly tls: admin.TlsStatus;
  readonly server: Server;
}

/** What is on a volume, and outlives the Pods that use it. */
interface Disk {
  readonly incarnation: string;
  /** 0: no member of any cell yet. */
  memberId: number;
}

export interface MembersOptions {
  /** Second byte of the members' addresses, 127.N.x.y: two fleets on one machine need two. */
  readonly loopback: number;
  readonly violate: (law: string) => void;
}

const TICK_MS = 250;
const ADDRESSES_A_BYTE = 250;
const VOLUME_BYTES = 1e10;

/** All members of all cells. Consensus is what it is in the operator's simulation; calls are real, with the cells' TLS. */
export class Members {
  readonly #options: MembersOptions;
  readonly #cells = new Map<string, RaftCell>();
  readonly #ofCell = new Map<string, Set<Member>>();
  readonly #members = new Map<string, Member>();
  readonly #disks = new Map<string, Disk>();
  readonly #timer: NodeJS.Timeout;
  #addresses = 0;
  #calls = 0;

  constructor(options: MembersOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
  }

  /** Calls that were answered, by all members together. */
  get calls(): number {
    return this.#calls;
  }

  get count(): number {
    return this.#members.size;
  }

  ofPod({ metadata }: Pod): Member | undefined {
    return this.#members.get(metadata.uid ?? "");
  }

  /** Whether its readiness probe would succeed: it is a voter that knows its leader. */
  isReady({ cellUid, disk }: Member): boolean {
    const { memberId } = disk;
    const cell = this.#cells.get(cellUid);
    return (
      cell !== undefined &&
      cell.leaderId !== 0 &&
      cell.configuration.voters.includes(memberId) &&
      cell.knownBy(memberId).index > 0
    );
  }

  /** Starts the program of a Pod. @throws Error when its address is taken */
  async start(pod: Pod, secret: Secret): Promise<void> {
    const leaf = readLeaf(secret);
    if (leaf === undefined) throw new TypeError(`the Secret of ${pod.metadata.name} holds no certificate`);
    const trusted = readTrust(secret);
    const server = new Server();
    const member: Member = {
      name: pod.metadata.name,
      cellUid: pod.metadata.labels?.[LABEL.cellUid] ?? "",
      ip: this.#nextAddress(),
      version: pod.spec.containers[0]?.image ?? "",
      disk: this.#diskOf(pod),
      tls: tlsStatus(leaf.certificate, trusted.map(fingerprintOf)),
      server,
    };
    server.addService(admin.AdminService, this.#service(member));
    const ca = Buffer.from(trusted.map(String).join(""));
    const pair = { private_key: Buffer.from(leaf.key), cert_chain: Buffer.from(leaf.certificate) };
    const address = `${member.ip}:${String(PORTS.admin)}`;
    await listen(server, address, ServerCredentials.createSsl(ca, [pair], true));
    this.#members.set(pod.metadata.uid ?? "", member);
    this.#ofCell.set(member.cellUid, (this.#ofCell.get(member.cellUid) ?? new Set()).add(member));
    if (pod.metadata.annotations?.[ANNOTATION.start] === "bootstrap") this.#found(member);
  }

  stop(podUid: string): void {
    const member = this.#members.get(podUid);
    if (member === undefined) return;
    member.server.forceShutdown();
    this.#members.delete(podUid);
    this.#ofCell.get(member.cellUid)?.delete(member);
  }

  close(): void {
    clearInterval(this.#timer);
    for (const uid of [...this.#members.keys()]) this.stop(uid);
  }

  #nextAddress(): string {
    const number = this.#addresses;
    this.#addresses += 1;
    const third = 1 + Math.floor(number / ADDRESSES_A_BYTE);
    return `127.${String(this.#options.loopback)}.${String(third)}.${String(1 + (number % ADDRESSES_A_BYTE))}`;
  }

  #diskOf({ metadata }: Pod): Disk {
    const key = `${metadata.namespace ?? ""}/${metadata.name}`;
    const disk = this.#disks.get(key) ?? { incarnation: randomUUID(), memberId: 0 };
    this.#disks.set(key, disk);
    return disk;
  }

  #found({ name, disk, cellUid }: Member): void {
    if (disk.memberId !== 0) return;
    disk.memberId = 1;
    const { incarnation } = disk;
    const reachable = (): ReadonlySet<number> =>
      new Set(
        [...(this.#ofCell.get(cellUid) ?? [])].map((member) => member.disk.memberId).filter((id) => id !== 0),
      );
    // Majorities are judged by the simulation; here nothing fails.
    const world = { reachable, violate: this.#options.violate, decided: () => undefined };
    this.#cells.set(cellUid, new RaftCell(randomUUID(), Date.now(), world, { name, incarnation }));
  }

  #tick(): void {
    for (const member of this.#members.values()) if (member.disk.memberId === 0) this.#join(member);
    for (const cell of this.#cells.values()) cell.tick(Date.now());
  }

  #join({ name, disk, cellUid }: Member): void {
    try {
      disk.memberId = this.#cells.get(cellUid)?.addLearner(name, disk.incarnation).id ?? 0;
    } catch (error) {
      // No leader just now, or a change under way: the program tries again.
      if (!(error instanceof CellAdminError)) throw error;
    }
  }

  #service(
    member: Member,
  ): Pick<
    admin.AdminServer,
    "status" | "listMembers" | "changeMembership" | "transferLeadership" | "listNamespaces"
  > {
    const cellOf = (): RaftCell => {
      const cell = this.#cells.get(member.cellUid);
      if (cell === undefined || member.disk.memberId === 0)
        throw new CellAdminError("no-leader", "joins", "not-applied");
      return cell;
    };
    const leaderOf = (): RaftCell => {
      const cell = cellOf();
      if (cell.leaderId === member.disk.memberId) return cell;
      throw new CellAdminError("not-leader", "ask the leader", "not-applied");
    };
    const counted = <Q, A>(answer: (request: Q) => A): ReturnType<typeof unary<Q, A>> =>
      unary((request) => {
        this.#calls += 1;
        return answer(request);
      });
    return {
      status: counted(() => statusOf(member, cellOf(), this.isReady(member))),
      listMembers: counted(() => listMembers(cellOf())),
      changeMembership: counted((request: admin.ChangeMembershipRequest) => {
        leaderOf().change(request);
        return { configurationIndex: cellOf().configurationIndex, members: [] };
      }),
      transferLeadership: counted(({ target }: admin.TransferLeadershipRequest) => ({
        leaderId: leaderOf().transfer(target),
      })),
      listNamespaces: counted(() => ({ cellId: cellOf().id, namespaces: [] })),
    };
  }
}

function listen(server: Server, address: string, credentials: ServerCredentials): Promise<void> {
  return new Promise((resolve, reject) => {
    server.bindAsync(address, credentials, (error) => {
      if (error === null) resolve();
      else reject(error);
    });
  });
}

function unary<Q, A>(
  answer: (request: Q) => A,
): (call: ServerUnaryCall<Q, A>, callback: sendUnaryData<A>) => void {
  return ({ request }, callback) => {
    try {
      callback(null, answer(request));
    } catch (error) {
      if (!(error instanceof CellAdminError)) throw error;
      const metadata = new Metadata();
      metadata.set("lockstep-error-code", error.code);
      callback({ code: GrpcStatus.FAILED_PRECONDITION, details: error.message, metadata });
    }
  };
}

function tlsStatus(leaf: string, trusted: readonly string[]): admin.TlsStatus {
  const [certificate] = certificatesOf(leaf);
  if (certificate === undefined) throw new TypeError("a leaf without a certificate");
  return {
    bundleHash: bundleHashOf(trusted),
    leafHash: fingerprintOf(certificate),
    leafNotAfterMs: certificate.validToDate.getTime(),
    reloadError: "",
  };
}

function listMembers(cell: RaftCell): admin.ListMembersResponse {
  const { members, ...described } = cell.describe();
  const kinds = {
    voter: admin.MemberKind.VOTER,
    learner: admin.MemberKind.LEARNER,
    leaving: admin.MemberKind.LEAVING,
  } as const;
  return {
    ...described,
    removedIds: [...described.removedIds],
    members: members.map((member) => ({ ...member, kind: kinds[member.kind], addresses: undefined })),
  };
}

function statusOf(member: Member, cell: RaftCell, ready: boolean): admin.StatusResponse {
  const { name, version, tls } = member;
  const { memberId: id, incarnation } = member.disk;
  const known = cell.knownBy(id);
  const isLeader = cell.leaderId === id;
  const appliedIndex = Math.min(cell.commitIndex, cell.matchOf(id));
  return {
    ...{ cellId: cell.id, memberId: id, name, incarnation, version, tls, ready, appliedIndex },
    ...{ formatVersion: cell.formatVersion, formatVersionMax: 1, term: cell.term, leaderId: cell.leaderId },
    role: isLeader ? admin.Role.LEADER : admin.Role.FOLLOWER,
    lastIndex: cell.matchOf(id),
    commitIndex: appliedIndex,
    revision: appliedIndex,
    configurationIndex: known.index,
    joint: known.joint,
    progress: isLeader ? [...cell.progress()] : [],
    alarms: [],
    ...{ freeBytes: VOLUME_BYTES / 2, volumeBytes: VOLUME_BYTES, databaseBytes: 1e6, logBytes: 1e6 },
    ...{ logFirstIndex: 1, barrierIndex: appliedIndex, leases: 0, watches: 0, keys: 0, syncP90Us: 3_000 },
    ...{ digest: "", digestCheckpointIndex: 0, digestAtCheckpoint: "" },
    notReady: ready ? "" : "It is no voter yet, or has no leader.",
  };
}
