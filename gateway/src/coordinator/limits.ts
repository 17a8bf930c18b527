/**
 * What a door checks before a request costs memory or reaches the log. The figures that decide an outcome are
 * replicated settings of the state machine too, which checks them again at apply.
 */
export interface Limits {
  readonly keyBytesMax: number;
  readonly valueBytesMax: number;
  /** All bytes of one transaction's keys, values and operands. */
  readonly txnBytesMax: number;
  /** Largest of: compares, success operations, failure operations. */
  readonly txnOperationsMax: number;
  /** One encoded request of any kind. */
  readonly requestBytesMax: number;
  /** One frame of a channel, or one unary message. */
  readonly frameBytesMax: number;
  readonly requestsPerFrameMax: number;
  readonly renewalsPerFrameMax: number;
  /** Keys that one lease may hold. */
  readonly keysPerLeaseMax: number;
  /** Keys that one delete may remove. */
  readonly keysPerDeleteMax: number;
  /** One reply of a range; `more` is set when it cuts. */
  readonly rangeReplyBytesMax: number;
  readonly rangeKeysMax: number;
  readonly requestTokenBytesMax: number;
  readonly leaseOwnerBytesMax: number;
  /** A shorter TTL is raised to this. */
  readonly leaseTtlMsMin: number;
  readonly leaseTtlMsMax: number;
  readonly namespaceBytesMax: number;
}

export const LIMITS: Limits = {
  keyBytesMax: 4 * 1024,
  // What etcd lets a request have, which kube-apiserver counts on.
  valueBytesMax: 1536 * 1024,
  txnBytesMax: 1536 * 1024,
  txnOperationsMax: 128,
  requestBytesMax: 2 * 1024 * 1024,
  frameBytesMax: 4 * 1024 * 1024,
  requestsPerFrameMax: 4096,
  renewalsPerFrameMax: 10_000,
  keysPerLeaseMax: 10_000,
  keysPerDeleteMax: 10_000,
  rangeReplyBytesMax: 3 * 1024 * 1024,
  rangeKeysMax: 10_000,
  requestTokenBytesMax: 128,
  leaseOwnerBytesMax: 256,
  leaseTtlMsMin: 2_000,
  leaseTtlMsMax: 9_000_000_000_000,
  namespaceBytesMax: 253,
};
