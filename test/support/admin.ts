import { Metadata, credentials } from "@grpc/grpc-js";
import type { ChannelCredentials, ServiceError } from "@grpc/grpc-js";
import { admin } from "@lockstep/proto";

type Unary<Q, A> = (
  request: Q,
  metadata: Metadata,
  options: { readonly deadline: number },
  callback: (error: ServiceError | null, response: A) => void,
) => unknown;

/** The admin API of one member, with promises. */
export class AdminApi {
  readonly #client: admin.AdminClient;

  /** @param channelCredentials default: plain text */
  constructor(address: string, channelCredentials: ChannelCredentials = credentials.createInsecure()) {
    this.#client = new admin.AdminClient(address, channelCredentials, {
      // Two of one address may come with different certificates.
      "grpc.use_local_subchannel_pool": 1,
      // A member that was just restarted is dialled again at once.
      "grpc.initial_reconnect_backoff_ms": 50,
      "grpc.max_reconnect_backoff_ms": 200,
    });
  }

  status(timeoutMs = 3_000): Promise<admin.StatusResponse> {
    return this.#call(this.#client.status.bind(this.#client), {}, timeoutMs);
  }

  members(): Promise<admin.ListMembersResponse> {
    const call = this.#client.listMembers.bind(this.#client) as Unary<object, admin.ListMembersResponse>;
    return this.#call(call, {}, 10_000);
  }

  addLearner(request: admin.AddLearnerRequest): Promise<admin.AddLearnerResponse> {
    const call = this.#client.addLearner.bind(this.#client) as Unary<
      admin.AddLearnerRequest,
      admin.AddLearnerResponse
    >;
    return this.#call(call, request, 20_000);
  }

  change(request: Partial<admin.ChangeMembershipRequest>): Promise<admin.ChangeMembershipResponse> {
    const call = this.#client.changeMembership.bind(this.#client) as Unary<
      admin.ChangeMembershipRequest,
      admin.ChangeMembershipResponse
    >;
    const whole = { plannedOn: 0, promote: [], demote: [], remove: [], force: false, ...request };
    return this.#call(call, whole, 60_000);
  }

  transfer(target: number): Promise<admin.TransferLeadershipResponse> {
    const call = this.#client.transferLeadership.bind(this.#client) as Unary<
      admin.TransferLeadershipRequest,
      admin.TransferLeadershipResponse
    >;
    return this.#call(call, { target }, 20_000);
  }

  close(): void {
    this.#client.close();
  }

  #call<Q, A>(call: Unary<Q, A>, request: Q, timeoutMs: number): Promise<A> {
    return new Promise((resolve, reject) => {
      call(request, new Metadata(), { deadline: Date.now() + timeoutMs }, (error, response) => {
        if (error === null) resolve(response);
        else reject(error);
      });
    });
  }
}

/** The stable code of a refused admin call. */
export function adminCode(error: unknown): string {
  return String((error as ServiceError).metadata.get("lockstep-error-code")[0] ?? "");
}
