import { health } from "@lockstep/proto/etcd";
import type { Coordinator } from "../coordinator/index.ts";
import { GrpcCode } from "../grpc/call.ts";
import type { GrpcService, ServerCall } from "../grpc/call.ts";
import { GrpcError } from "../grpc/error.ts";
import type { AnswerStream } from "../grpc/service-of.ts";
import { serviceOf } from "../grpc/service-of.ts";

const { SERVING, NOT_SERVING, SERVICE_UNKNOWN } = health.HealthCheckResponse_ServingStatus;
type Status = health.HealthCheckResponse["status"];

/**
 * `grpc.health.v1.Health`: serving means that this member knows a leader, so that it can answer.
 * @param isServed whether a service of that name is served here
 */
export function healthService(coordinator: Coordinator, isServed: (name: string) => boolean): GrpcService {
  const statusNow = (service: string): Status | undefined => {
    if (service !== "" && !isServed(service)) return undefined;
    return coordinator.info().leader === undefined ? NOT_SERVING : SERVING;
  };
  return serviceOf(health.HealthService, {
    check: ({ service }: health.HealthCheckRequest) => {
      const status = statusNow(service);
      if (status !== undefined) return { status };
      throw new GrpcError({ code: GrpcCode.NOT_FOUND, details: "unknown service" });
    },
    watch: (request: health.HealthCheckRequest, stream: AnswerStream<health.HealthCheckResponse>) =>
      watchHealth(coordinator, stream, () => statusNow(request.service) ?? SERVICE_UNKNOWN),
  });
}

/** Says the status, and every other that follows it, until the client goes away. */
async function watchHealth(
  coordinator: Coordinator,
  stream: AnswerStream<health.HealthCheckResponse> & ServerCall,
  statusNow: () => Status,
): Promise<void> {
  let wake: () => void = () => undefined;
  const unsubscribe = coordinator.onLeaderChange(() => wake());
  stream.onClose(() => wake());
  try {
    let told: Status | undefined;
    while (!stream.cancelled) {
      const status = statusNow();
      if (status === told) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        continue;
      }
      told = status;
      await stream.write({ status });
    }
  } finally {
    unsubscribe();
  }
}
