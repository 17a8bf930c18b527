export { connect, Client } from "./client.ts";
export type { ConnectOptions } from "./options.ts";
export { tlsFromFiles } from "./channel/tls.ts";
export type { TlsFileSource, TlsOptions, TlsPaths, TlsSource } from "./channel/tls.ts";
export { LockstepError } from "./errors.ts";
export type { ClientErrorCode, ErrorCode, LockstepErrorDetails, OperationOutcome } from "./errors.ts";
export { Session } from "./session.ts";
export type { SessionOptions, SessionState } from "./session.ts";
export { Claim, whileHeld } from "./recipes/claim.ts";
export type { AcquireOptions } from "./recipes/acquiring.ts";
export { tokenToString } from "./recipes/token.ts";
export { ExclusiveLock, Lock, lockKey } from "./recipes/exclusive-lock.ts";
export type { LockOptions } from "./recipes/exclusive-lock.ts";
export { FairLock } from "./recipes/fair-lock.ts";
export type { QueueState } from "./recipes/fair-lock.ts";
export { ReadWriteHold, ReadWriteLock } from "./recipes/read-write-lock.ts";
export type { ReadWriteState } from "./recipes/read-write-lock.ts";
export { Permit, Semaphore } from "./recipes/semaphore.ts";
export type { SemaphoreOptions, SemaphoreState } from "./recipes/semaphore.ts";
export { MultiLock, MultiLockHold } from "./recipes/multi-lock.ts";
export { Election, Leadership } from "./recipes/election.ts";
export type { CampaignOptions, LeaderState, ObserveOptions, SubscribeOptions } from "./recipes/election.ts";
export { Endpoints, Registration, Service } from "./recipes/service.ts";
export type { Endpoint, EndpointsOptions, RegisterOptions } from "./recipes/service.ts";
export { StandingRegistration } from "./recipes/standing-registration.ts";
export type { KeepRegisteredOptions } from "./recipes/standing-registration.ts";
export { TreeView } from "./recipes/tree-view.ts";
export type { TreeViewOptions, ViewChange, ViewSubscription } from "./recipes/tree-view.ts";
export { SharedValue } from "./recipes/shared-value.ts";
export type { SharedValueOptions } from "./recipes/shared-value.ts";
export { Counter } from "./recipes/counter.ts";
export { Barrier } from "./recipes/barrier.ts";
export type { BarrierWaitOptions } from "./recipes/barrier.ts";
export { DoubleBarrier, Participation } from "./recipes/double-barrier.ts";
export type { DoubleBarrierOptions } from "./recipes/double-barrier.ts";
export type { AskedOptions, AskOptions, RevocationRequest } from "./recipes/revocation.ts";
export { ConditionFailedError, Transaction, TransactionSteps } from "./recipes/transaction.ts";
export type {
  Committed,
  DeleteStepOptions,
  FailedCondition,
  GetStepOptions,
  PutStepOptions,
  Refused,
} from "./recipes/transaction.ts";
export type { OnError } from "./recipes/callbacks.ts";
export { lockState } from "./recipes/owner.ts";
export type { LockState } from "./recipes/owner.ts";
export { DIAGNOSTICS, DiagnosticsChannel } from "./diagnostics.ts";
export type {
  AcquireMessage,
  CallMessage,
  Diagnostics,
  ReleaseMessage,
  SessionEnd,
  SessionMessage,
  Span,
} from "./diagnostics.ts";
export { Watch } from "./watch.ts";
export type { WatchOptions } from "./watch.ts";
export { KeyValue, NO_LEASE_ID } from "./types.ts";
export type {
  CallOptions,
  Cause,
  CellInfo,
  CompactResult,
  Compare,
  CompareFailure,
  CompareOperator,
  DeleteOptions,
  DeleteResult,
  LeaseGrantOptions,
  LeaseGrantResult,
  LeaseId,
  LeaseListResult,
  LeaseRenewResult,
  LeaseRevokeResult,
  LeaseSummary,
  LeaseTimeToLiveResult,
  OperationResult,
  PutOptions,
  PutResult,
  RangeOptions,
  RangeResult,
  RegisterClientResult,
  Txn,
  TxnResult,
  TxnStep,
  TxnStepResult,
  WatchBatch,
  WatchEvent,
} from "./types.ts";
export { prefixEnd } from "./bytes.ts";
export type { Bytes, RangeInput, WireRange } from "./bytes.ts";
// Below the promises: for routers, load generators and the simulator.
export { Channel } from "./channel/channel.ts";
export type { ChannelOptions, ExecuteOptions } from "./channel/channel-options.ts";
export type { Completion } from "./channel/pending.ts";
export { ChannelWatch } from "./channel/watches.ts";
export type { WatchListener, WatchSpec } from "./channel/watches.ts";
export { HeldLease } from "./channel/leases.ts";
export type { LeaseBook, LeaseEndReason, SendTime } from "./channel/leases.ts";
export type { FrameLink, FrameSink, LinkProgress, Transport } from "./channel/transport.ts";
export { REAL_RUNTIME } from "./runtime.ts";
export type { Runtime } from "./runtime.ts";
