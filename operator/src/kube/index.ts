/**
 * A controller runtime for Kubernetes: calls, informers, a work queue, leader election with fencing, events. It knows
 * nothing of any particular operator.
 */
export { KubeError } from "./types.ts";
export type {
  DeleteOptions,
  KubeClient,
  KubeErrorReason,
  KubeObject,
  ListOptions,
  ObjectCache,
  ObjectMeta,
  ObjectRef,
  OwnerReference,
  ResourceKind,
} from "./types.ts";

export { inClusterAccess, kubeconfigAccess } from "./cluster.ts";
export type {
  ClusterAccess,
  ClusterTls,
  Credentials,
  InClusterOptions,
  KubeconfigOptions,
} from "./cluster.ts";
export { createHttpTransport } from "./http-transport.ts";
export type { HttpTransportOptions } from "./http-transport.ts";
export type { ApiRequest, ApiResponse, Lane, Transport } from "./transport.ts";
export { Rest } from "./rest.ts";
export type { RestOptions, RestRequest } from "./rest.ts";
export { createKubeClient } from "./client.ts";
export type { KubeClientOptions } from "./client.ts";

export { createInformer } from "./informer.ts";
export type { ChangeHandler, Informer, InformerOptions } from "./informer.ts";
export type { Change, IndexBy } from "./object-store.ts";
export { REFLECTOR_LIMITS } from "./reflector.ts";
export type { ReflectorLimits } from "./reflector.ts";
export { compareResourceVersions } from "./resource-version.ts";

export { WorkQueue } from "./work-queue.ts";
export type { WorkQueueOptions, WorkResult } from "./work-queue.ts";
export { TokenBucket } from "./token-bucket.ts";
export type { TokenBucketOptions } from "./token-bucket.ts";
export { Elector, LEASE_DURATIONS } from "./elector.ts";
export type { ElectorOptions, LeaseDurations } from "./elector.ts";
export { LEASES, microTime } from "./lease.ts";
export type { Lease, LeaseSpec } from "./lease.ts";
export type { WriteGate, WritePass } from "./gate.ts";
export { EVENTS, EventRecorder } from "./event-recorder.ts";
export type { EventDetails, EventRecorderOptions, KubeEvent, ObjectReference } from "./event-recorder.ts";

export { NO_METRICS, createPrometheusMetrics } from "./metrics.ts";
export type { KubeMetrics, RequestSample } from "./metrics.ts";
export { REAL_RUNTIME, backoffMs, sleep } from "./runtime.ts";
export type { BackoffLimits, Runtime } from "./runtime.ts";
