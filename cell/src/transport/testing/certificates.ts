import { TestAuthority } from "@lockstep/gateway/testing/certificates";
import type { TransportTls } from "../index.ts";

export const AUTHORITY: TestAuthority = new TestAuthority("Lockstep test CA");
const OTHER_AUTHORITY = new TestAuthority("Other test CA");

/** A certificate for loopback and, if there is a name, of that member. */
export function memberTls(name?: string, authority: TestAuthority = AUTHORITY): TransportTls {
  const leaf = authority.issue({
    commonName: "member-of-a-test",
    ...(name === undefined ? {} : { uris: [`lockstep://cell/member/${name}`], ips: [], dns: ["elsewhere"] }),
  });
  return { ...leaf, ca: authority.cert };
}

export const MEMBER_TLS: TransportTls = memberTls();

/** Trusts the members, who do not trust it. */
export const STRANGER_TLS: TransportTls = { ...memberTls(undefined, OTHER_AUTHORITY), ca: AUTHORITY.cert };
