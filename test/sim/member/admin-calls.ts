import { GrpcError } from "@lockstep/gateway";
import type { admin } from "@lockstep/proto";
import type { AdminService } from "../../../cell/src/admin/service.ts";
import { JOIN_TRY_MS_MAX, JoinFailure } from "../../../cell/src/member/join.ts";
import type { SimProcess } from "../contract.ts";
import type { SimNetwork } from "../network/network.ts";

type Method = "listMembers" | "addLearner" | "changeMembership" | "transferLeadership" | "compact" | "status";

/** A member's admin API, while it listens. */
export interface OpenAdmin {
  readonly host: string;
  readonly process: SimProcess;
  readonly service: AdminService;
}

/** What the admin API refused with, or why it could not be asked. */
export class AdminFailure extends Error {
  override readonly name = "AdminFailure";
  readonly code: string;
  readonly leaderAdmin: string | undefined;

  constructor(code: string, message: string, leaderAdmin?: string) {
    super(message);
    this.code = code;
    this.leaderAdmin = leaderAdmin;
  }
}

type Handler = (request: object) => Promise<unknown>;

/** Admin calls of one process over the simulated network; each is asked once, and bounded in time. */
export class AdminCalls {
  readonly #process: SimProcess;
  readonly #network: SimNetwork;
  readonly #adminAt: (address: string) => OpenAdmin | undefined;

  constructor(process: SimProcess, network: SimNetwork, adminAt: (address: string) => OpenAdmin | undefined) {
    this.#process = process;
    this.#network = network;
    this.#adminAt = adminAt;
  }

  /** Rejects with {@link AdminFailure}. */
  call<A>(address: string, method: Method, request: object, timeoutMs: number): Promise<A> {
    const process = this.#process;
    return new Promise((resolve, reject) => {
      const cancel = process.after(timeoutMs, () => reject(new AdminFailure("timeout", "no answer in time")));
      const answer = (error: AdminFailure | undefined, value: unknown): void => {
        cancel();
        if (error === undefined) resolve(value as A);
        else reject(error);
      };
      const target = this.#adminAt(address);
      if (target?.process.alive !== true) {
        process.deliver(this.#network.delayUs(), () =>
          answer(new AdminFailure("unavailable", "connection refused"), undefined),
        );
        return;
      }
      if (this.#network.blocked(process.host, target.host)) return;
      target.process.deliver(this.#network.delayUs(), () => this.#serve(target, { method, request }, answer));
    });
  }

  #serve(
    target: OpenAdmin,
    { method, request }: { readonly method: Method; readonly request: object },
    answer: (error: AdminFailure | undefined, value: unknown) => void,
  ): void {
    const handler = target.service[method] as unknown as Handler;
    const reply = (failure: AdminFailure | undefined, value?: unknown): void => {
      if (this.#network.blocked(target.host, this.#process.host)) return;
      this.#process.deliver(this.#network.delayUs(), () => answer(failure, value));
    };
    handler(request).then(
      (value) => reply(undefined, value),
      (error: unknown) => reply(toFailure(error)),
    );
  }
}

function toFailure(error: unknown): AdminFailure {
  const message = error instanceof Error ? error.message : String(error);
  const metadata = error instanceof GrpcError ? error.status.metadata : undefined;
  const code = metadata?.["lockstep-error-code"] ?? "internal";
  return new AdminFailure(code, message, metadata?.["lockstep-leader-admin"]);
}

/** How a member of the simulated world asks to be let into its cell. */
export function askToJoin(
  calls: AdminCalls,
): (target: string, request: admin.AddLearnerRequest) => Promise<admin.AddLearnerResponse> {
  return async (target, request) => {
    try {
      return await calls.call<admin.AddLearnerResponse>(target, "addLearner", request, JOIN_TRY_MS_MAX);
    } catch (error) {
      if (!(error instanceof AdminFailure)) throw error;
      throw new JoinFailure(error.code, error.message, error.leaderAdmin);
    }
  };
}
