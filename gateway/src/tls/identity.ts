import type { TLSSocket } from "node:tls";

/** What a certificate may speak for. */
export type IdentityKind = "member" | "admin" | "client";

/**
 * Who somebody proved to be: the one URI among the alternative names of a verified certificate,
 * `lockstep://CELL-UID/KIND/NAME` (docs/security.md).
 */
export interface CertificateIdentity {
  /** The name that its issuer gave the cell; not the id that the cell drew for itself. */
  readonly cellUid: string;
  readonly kind: IdentityKind;
  readonly name: string;
}

/** `reason`: why the certificate proves nothing here, for people. */
export type IdentityVerdict =
  | { readonly ok: true; readonly identity: CertificateIdentity }
  | { readonly ok: false; readonly reason: string };

const LABEL = "[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?";
const CELL_UID = new RegExp(`^${LABEL}$`);
// Letters, digits, dots and dashes alone: with nothing to decode, no two spellings can mean one name.
const IDENTITY = new RegExp(`^lockstep://(${LABEL})/(member|admin|client)/(${LABEL})$`);
/** Node puts a value with anything special in it between quotes, so that a comma always ends an entry. */
const ENTRY = /([A-Za-z0-9 ]+):("(?:[^"\\]|\\.)*"|[^",]*)(?:, |$)/y;
/** Far above every honest certificate. */
const NAMES_LENGTH_MAX = 16 * 1024;

/** Whether a text may name a cell in certificates: 1 to 63 letters, digits, '.' and '-'. */
export function isCellUid(text: string): boolean {
  return CELL_UID.test(text);
}

/** As it stands in a certificate. */
export function identityUri({ cellUid, kind, name }: CertificateIdentity): string {
  return `lockstep://${cellUid}/${kind}/${name}`;
}

/**
 * Reads the identity out of a certificate's alternative names, in the form that Node gives them
 * (`DNS:a.example, URI:lockstep://...`). It must have exactly one URI, and that one must be an identity.
 *
 * @param cellUid the cell that it must name
 */
export function readIdentity(alternativeNames: string | undefined, cellUid: string): IdentityVerdict {
  const uris = alternativeNames === undefined ? [] : urisOf(alternativeNames);
  if (uris === undefined) return refused("its alternative names cannot be read");
  const [uri] = uris;
  if (uri === undefined) return refused("it carries no URI, so it says nothing about who this is");
  if (uris.length > 1) return refused(`it carries ${uris.length} URIs; which one counts would be a guess`);
  const [, uid, kind, name] = IDENTITY.exec(uri) ?? [];
  if (uid === undefined || kind === undefined || name === undefined) {
    return refused(
      `its URI ${JSON.stringify(uri.slice(0, 200))} is not lockstep://CELL-UID/member|admin|client/NAME`,
    );
  }
  if (uid !== cellUid) return refused(`it belongs to cell ${uid}, and this is cell ${cellUid}`);
  return { ok: true, identity: { cellUid, kind: kind as IdentityKind, name } };
}

function refused(reason: string): IdentityVerdict {
  return { ok: false, reason };
}

/** undefined: not in the form that Node gives. */
function urisOf(names: string): readonly string[] | undefined {
  if (names.length > NAMES_LENGTH_MAX) return undefined;
  const uris: string[] = [];
  for (ENTRY.lastIndex = 0; ENTRY.lastIndex < names.length;) {
    const [, type, value] = ENTRY.exec(names) ?? [];
    if (type === undefined || value === undefined) return undefined;
    if (type === "URI") uris.push(value);
  }
  return uris;
}

const known = new WeakMap<TLSSocket, IdentityVerdict>();

/** Who is at the other end of a connection. Told once for each, since a connection never changes hands. */
export function socketIdentity(socket: TLSSocket, cellUid: string): IdentityVerdict {
  let verdict = known.get(socket);
  if (verdict === undefined) {
    verdict = socket.authorized
      ? readIdentity(socket.getPeerX509Certificate()?.subjectAltName, cellUid)
      : refused("no certificate that this cell's authorities signed");
    known.set(socket, verdict);
  }
  return verdict;
}
