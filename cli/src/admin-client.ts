import {
  credentials,
  Metadata,
  status as grpcStatus,
  type ClientReadableStream,
  type ClientUnaryCall,
  type ServiceError,
} from "@grpc/grpc-js";
import { admin } from "@lockstep/proto";
import { CliError, EXIT } from "./exit-codes.ts";
import type { TlsFiles } from "./tls.ts";

const LEADER_TRAILER = "lockstep-leader-admin";
const REDIRECTS_MAX = 5;
const SNAPSHOT_MS_MAX = 60 * 60 * 1_000;

type Callback<T> = (error: ServiceError | null, response: T) => void;
type Call<T> = (
  client: admin.AdminClient,
  rest: { metadata: Metadata; deadline: { deadline: Date }; callback: Callback<T> },
) => ClientUnaryCall;

/** An answer or an error of one member. */
export type PerMember =
  | { readonly address: string; readonly status: admin.StatusResponse }
  | { readonly address: string; readonly error: string };

/** The admin service of a cell: any member for what any member knows, the leader for changes. */
export class AdminClient {
  readonly #endpoints: readonly string[];
  readonly #tls: TlsFiles | undefined;
  readonly #timeoutMs: number;
  readonly #clients = new Map<string, admin.AdminClient>();

  constructor(endpoints: readonly string[], options: { tls: TlsFiles | undefined; timeoutMs: number }) {
    this.#endpoints = endpoints;
    this.#tls = options.tls;
    this.#timeoutMs = options.timeoutMs;
  }

  /** The status of one member. */
  status(address: string): Promise<admin.StatusResponse> {
    return this.#unary(address, (client, { metadata, deadline, callback }) =>
      client.status({}, metadata, deadline, callback),
    );
  }

  async statusOrError(address: string): Promise<PerMember> {
    try {
      return { address, status: await this.status(address) };
    } catch (error) {
      return { address, error: error instanceof Error ? error.message : String(error) };
    }
  }

  listMembers(): Promise<admin.ListMembersResponse> {
    return this.#anyThenLeader((client, { metadata, deadline, callback }) =>
      client.listMembers({}, metadata, deadline, callback),
    );
  }

  addLearner(request: admin.AddLearnerRequest): Promise<admin.AddLearnerResponse> {
    return this.#anyThenLeader((client, { metadata, deadline, callback }) =>
      client.addLearner(request, metadata, deadline, callback),
    );
  }

  changeMembership(request: admin.ChangeMembershipRequest): Promise<admin.ChangeMembershipResponse> {
    return this.#anyThenLeader((client, { metadata, deadline, callback }) =>
      client.changeMembership(request, metadata, deadline, callback),
    );
  }

  transferLeadership(target: number): Promise<admin.TransferLeadershipResponse> {
    return this.#anyThenLeader((client, { metadata, deadline, callback }) =>
      client.transferLeadership({ target }, metadata, deadline, callback),
    );
  }

  listNamespaces(): Promise<admin.ListNamespacesResponse> {
    return this.#anyThenLeader((client, { metadata, deadline, callback }) =>
      client.listNamespaces({}, metadata, deadline, callback),
    );
  }

  createNamespace(request: admin.CreateNamespaceRequest): Promise<admin.CreateNamespaceResponse> {
    return this.#anyThenLeader((client, { metadata, deadline, callback }) =>
      client.createNamespace(request, metadata, deadline, callback),
    );
  }

  deleteNamespace(request: admin.DeleteNamespaceRequest): Promise<admin.DeleteNamespaceResponse> {
    return this.#anyThenLeader((client, { metadata, deadline, callback }) =>
      client.deleteNamespace(request, metadata, deadline, callback),
    );
  }

  raiseFormatVersion(request: admin.RaiseFormatVersionRequest): Promise<admin.RaiseFormatVersionResponse> {
    return this.#anyThenLeader((client, { metadata, deadline, callback }) =>
      client.raiseFormatVersion(request, metadata, deadline, callback),
    );
  }

  /** The snapshot of the first member that can be reached. */
  async snapshot(): Promise<ClientReadableStream<admin.SnapshotChunk>> {
    let last: unknown;
    for (const address of this.#endpoints) {
      try {
        await this.status(address);
        return this.#client(address).snapshot({}, { deadline: new Date(Date.now() + SNAPSHOT_MS_MAX) });
      } catch (error) {
        last = error;
      }
    }
    throw adminError(last, this.#endpoints);
  }

  close(): void {
    for (const client of this.#clients.values()) client.close();
    this.#clients.clear();
  }

  /** Tries the endpoints in turn and goes where they say the leader is. */
  async #anyThenLeader<T>(call: Call<T>): Promise<T> {
    let last: unknown;
    const queue = [...this.#endpoints];
    for (let redirects = 0; queue.length > 0;) {
      const address = queue.shift() ?? "";
      try {
        return await this.#unary(address, call);
      } catch (error) {
        last = error;
        const leader = leaderOf(error);
        if (leader !== undefined && leader !== address && redirects < REDIRECTS_MAX) {
          redirects += 1;
          queue.unshift(leader);
        } else if (!worthAnother(error)) break;
      }
    }
    throw adminError(last, this.#endpoints);
  }

  #unary<T>(address: string, call: Call<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      call(this.#client(address), {
        metadata: new Metadata(),
        deadline: { deadline: new Date(Date.now() + this.#timeoutMs) },
        callback: (error, response) => {
          if (error === null) resolve(response);
          else reject(error);
        },
      });
    });
  }

  #client(address: string): admin.AdminClient {
    let client = this.#clients.get(address);
    if (client === undefined) {
      const tls = this.#tls;
      client = new admin.AdminClient(
        address,
        tls === undefined
          ? credentials.createInsecure()
          : credentials.createSsl(tls.ca ?? null, tls.key ?? null, tls.cert ?? null),
        {
          "grpc.max_receive_message_length": 16 * 1024 * 1024,
          "grpc.use_local_subchannel_pool": 1,
          // A member that is just starting is asked again soon, not after grpc's usual seconds.
          "grpc.initial_reconnect_backoff_ms": 100,
          "grpc.max_reconnect_backoff_ms": 1_000,
        },
      );
      this.#clients.set(address, client);
    }
    return client;
  }
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && typeof error.code === "number";
}

/** The leader's admin address, when a member named it in its refusal. */
export function leaderOf(error: unknown): string | undefined {
  if (!isServiceError(error)) return undefined;
  const metadata = error.metadata as Metadata | undefined;
  const [address] = metadata?.get(LEADER_TRAILER) ?? [];
  return typeof address === "string" && address !== "" ? address : undefined;
}

/** A member that cannot be reached, or knows no leader, says nothing about the others. */
function worthAnother(error: unknown): boolean {
  return (
    isServiceError(error) &&
    (error.code === grpcStatus.UNAVAILABLE || error.code === grpcStatus.DEADLINE_EXCEEDED)
  );
}

/** A failed admin call as a person should read it. */
export function adminError(error: unknown, endpoints: readonly string[]): CliError {
  if (!isServiceError(error)) {
    return new CliError(EXIT.failed, error instanceof Error ? error.message : String(error));
  }
  const message = error.details === "" ? error.message : error.details;
  switch (error.code) {
    case grpcStatus.UNAVAILABLE:
      return new CliError(
        EXIT.unavailable,
        `no member answered at ${endpoints.join(", ")}: ${message}`,
        "Are the members running? Name their admin addresses with --admin-endpoints or LOCKSTEP_ADMIN_ENDPOINTS.",
      );
    case grpcStatus.DEADLINE_EXCEEDED:
      return new CliError(
        EXIT.unknown,
        `no answer in time: ${message}`,
        "The change may still happen: look at `lockstep member list` before you repeat it.",
      );
    case grpcStatus.NOT_FOUND:
      return new CliError(EXIT.notFound, message, "`lockstep member list` shows the members there are.");
    case grpcStatus.INVALID_ARGUMENT:
      return new CliError(EXIT.usage, message);
    default:
      return new CliError(EXIT.failed, message);
  }
}
