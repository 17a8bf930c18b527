import type { Authorize, CertificateIdentity } from "@lockstep/gateway";
import { readIdentity } from "@lockstep/gateway";
import { admin } from "@lockstep/proto";
import type { PeerCertificateNames } from "../transport/types.ts";

const { addLearner, listMembers, status } = admin.AdminService;

/**
 * Who may call what of the admin API: administrators everything; members what they need to join, each for its own name
 * only; nobody else anything.
 * @returns why not
 */
export const authorizeAdmin: Authorize = ({ path, identity, request }) => {
  const who = `${identity.kind}/${identity.name}`;
  switch (identity.kind) {
    case "admin":
      return undefined;
    case "client":
      return `${who} is an application; the admin API is for administrators`;
    case "member": {
      if (path === listMembers.path || path === status.path) return undefined;
      if (path !== addLearner.path)
        return `${who} may join, and see who the members are; the rest is for administrators`;
      const name = joiningName(request);
      return name === identity.name ? undefined : `${who} may join under its own name, not as ${name}`;
    }
  }
};

/** Of a request that cannot be read: nobody's. */
function joiningName(request: Buffer | undefined): string {
  try {
    return admin.AddLearnerRequest.decode(request ?? Buffer.alloc(0)).name;
  } catch {
    return "";
  }
}

/**
 * Reads the certificate of somebody at the other end of a connection between members: it must name a member of this
 * cell.
 * @returns its name, or why it is not taken
 */
export function readPeer(
  certificate: PeerCertificateNames | undefined,
  cellUid: string,
): { readonly ok: true; readonly name: string } | { readonly ok: false; readonly reason: string } {
  if (certificate === undefined) return { ok: false, reason: "there is no certificate" };
  const verdict = readIdentity(certificate.alternativeNames, cellUid);
  if (!verdict.ok) return verdict;
  const identity: CertificateIdentity = verdict.identity;
  if (identity.kind !== "member") {
    return { ok: false, reason: `it is for ${identity.kind}/${identity.name}, not for a member` };
  }
  return { ok: true, name: identity.name };
}
