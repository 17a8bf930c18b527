import type { MemberAddresses } from "../machine/membership.ts";
import { parseAddress } from "./options.ts";
import type { RecoverOptions, Recovery } from "./recover.ts";

/** The command line of `recover`. */
export interface RecoverFlags {
  readonly name: string;
  readonly output: string;
  readonly expectCellId?: string;
  readonly expectAppliedIndex?: number;
  readonly advertiseClient?: string;
  readonly advertiseHttp?: string;
  readonly advertisePeer?: string;
  readonly advertiseAdmin?: string;
  readonly advertiseOps?: string;
}

const NAME = /^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$/i;

/** @throws TypeError that names the flag which makes no sense */
export function recoverOptionsOf(directory: string, flags: RecoverFlags): RecoverOptions {
  if (!NAME.test(flags.name)) {
    throw new TypeError("--name is 1 to 63 letters, digits, '-' and '.'");
  }
  const given: Readonly<Record<keyof MemberAddresses, string | undefined>> = {
    client: flags.advertiseClient,
    http: flags.advertiseHttp,
    peer: flags.advertisePeer,
    admin: flags.advertiseAdmin,
    ops: flags.advertiseOps,
  };
  const advertise: Partial<Record<keyof MemberAddresses, string>> = {};
  for (const [port, address] of Object.entries(given)) {
    if (address === undefined) continue;
    parseAddress(`advertise-${port}`, address);
    advertise[port as keyof MemberAddresses] = address;
  }
  return {
    ...{ directory, name: flags.name, advertise },
    ...(flags.expectCellId === undefined ? {} : { expectCellId: flags.expectCellId }),
    ...(flags.expectAppliedIndex === undefined ? {} : { expectAppliedIndex: flags.expectAppliedIndex }),
  };
}

/** For people. */
export function recoveryReport({ outcome, identity, from }: Recovery): { readonly lines: readonly string[] } {
  const what =
    outcome === "already"
      ? "nothing to do: this folder was recovered before"
      : "recovered: this folder is the only voter of a new cell";
  return {
    lines: [
      what,
      `it was member ${from.name} (id ${String(from.memberId)}) of cell ${from.cellId}; kept is its log up to index ${String(from.lastIndex)}`,
      `it is member ${identity.name} (id ${String(identity.memberId)}) of cell ${identity.cellId}`,
      `start it under its new name; no member of the old cell may come back: start others with empty folders`,
    ],
  };
}
