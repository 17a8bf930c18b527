import type { Coordinator, Limits } from "../coordinator/index.ts";
import { GrpcCode } from "../grpc/call.ts";
import type { ServerCall } from "../grpc/call.ts";
import { GrpcError } from "../grpc/error.ts";
import { DEFAULT_NAMESPACE, validateNamespace } from "../validation.ts";
import { lockstepStatus } from "./errors.ts";

/** Authorities remembered with what they mean: a server has a handful of names. */
const REMEMBERED_MAX = 1_000;

/** Request metadata that names a namespace. */
const METADATA = "lockstep-namespace";

/**
 * Which namespace a call of an etcd client acts in: the one its metadata names; else the labels that its `:authority`
 * has in front of a host name of this cell (`orders.team.cell-0.example:2379`); else the default one.
 */
export class CallNamespaces {
  private readonly coordinator: Coordinator;
  private readonly limits: Limits;
  private readonly suffixes: readonly string[];
  private byAuthority = new Map<string, string>();

  /** @param suffixes host names that namespaces may stand in front of, beside those of the members */
  constructor(coordinator: Coordinator, limits: Limits, suffixes: readonly string[]) {
    this.coordinator = coordinator;
    this.limits = limits;
    this.suffixes = suffixes.map((suffix) => suffix.toLowerCase());
  }

  /** @throws GrpcError when the name is no name */
  of(call: ServerCall): string {
    const named = call.header(METADATA);
    if (named !== undefined) return this.checked(named);
    const { authority } = call;
    const known = this.byAuthority.get(authority);
    if (known !== undefined) return known;
    const found = this.checked(this.leadingLabels(hostOf(authority)) ?? DEFAULT_NAMESPACE);
    if (this.byAuthority.size >= REMEMBERED_MAX) this.byAuthority = new Map();
    this.byAuthority.set(authority, found);
    return found;
  }

  /** The members may have other names now. */
  forget(): void {
    this.byAuthority = new Map();
  }

  private leadingLabels(host: string): string | undefined {
    const addresses = this.coordinator.info().clientAddresses ?? [];
    for (const suffix of [...this.suffixes, ...addresses.map(hostOf)]) {
      if (suffix !== "" && host.endsWith(`.${suffix}`)) return host.slice(0, -suffix.length - 1);
    }
    return undefined;
  }

  private checked(name: string): string {
    const failure = validateNamespace(name, this.limits);
    if (failure === undefined) return name;
    throw new GrpcError(lockstepStatus(GrpcCode.INVALID_ARGUMENT, failure.message));
  }
}

/** Without the port, in lower case; an IPv6 address keeps its brackets. */
function hostOf(authority: string): string {
  return authority.replace(/:\d+$/, "").toLowerCase();
}
