import type { CertificateIdentity } from "../tls/identity.ts";

/** A member as etcd's clients list it. */
export interface ControlMember {
  readonly id: number;
  readonly name: string;
  /** host:port of its listener for peers. */
  readonly peerAddress: string;
  /** host:port of its listener for clients. */
  readonly clientAddress: string;
  readonly isLearner: boolean;
}

/** What a member says about itself. */
export interface ControlStatus {
  readonly isLearner: boolean;
  readonly lastIndex: number;
  readonly appliedIndex: number;
  /** Bytes of the store on disk. */
  readonly databaseBytes: number;
  /** Bytes of it that hold something. */
  readonly databaseBytesInUse: number;
  /** Absent: no quota. */
  readonly quotaBytes?: number;
  readonly spaceLow: boolean;
  readonly diverged: boolean;
}

export type ControlErrorCode =
  | "unknown-member"
  | "not-leader"
  | "no-leader"
  | "not-a-learner"
  | "learner-not-ready"
  | "unhealthy-cell"
  | "change-pending"
  | "timeout"
  | "refused";

/** Why a change of the cell was not made, or not seen to be made. */
export class ControlError extends Error {
  override readonly name: string = "ControlError";
  readonly code: ControlErrorCode;

  constructor(code: ControlErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * What etcd's clients may ask about the cell itself. A member implements it with the same path, and the same care, as its
 * admin API; a router has none.
 */
export interface EtcdControl {
  /** @throws ControlError when it must be current and there is no leader to prove it */
  members(linearizable: boolean): Promise<readonly ControlMember[]>;
  /** @returns the members after it @throws ControlError */
  remove(memberId: number): Promise<readonly ControlMember[]>;
  /** Makes a learner a voter. @returns the members after it @throws ControlError */
  promote(memberId: number): Promise<readonly ControlMember[]>;
  /** @throws ControlError */
  transferLeadership(memberId: number): Promise<void>;
  status(): ControlStatus;
  /** The whole state in chunks, as of one moment. Stops early when `write` says false. */
  snapshot(write: (chunk: Buffer) => Promise<boolean>): Promise<void>;
  /** Whether somebody may change the cell. @returns why not */
  authorize(identity: CertificateIdentity | undefined): string | undefined;
}
