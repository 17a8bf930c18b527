/** Who has a certificate of a cell, what it must name, and in which Secret it stands. */
import type { CellIdentity } from "../api/labels.ts";
import {
  clientHost,
  clientIdentity,
  clientSecretName,
  clientServiceName,
  memberHost,
  memberIdentity,
  operatorCertificateName,
  operatorIdentity,
  operatorSecretName,
} from "../api/names.ts";
import type { TlsSpec } from "../api/types.ts";
import type { ObjectRef } from "../kube/types.ts";
import { secretNameOf } from "../resources/pod.ts";

export interface CertificateHolder {
  /** `member/NAME`, `client/default` or `admin/operator`. */
  readonly name: string;
  readonly kind: "member" | "client" | "operator";
  /** The CellMember's name; undefined: no member. */
  readonly member: string | undefined;
  readonly identity: string;
  /** Host names, for those who serve. */
  readonly dnsNames: readonly string[];
  readonly secret: ObjectRef;
}

export interface HoldersInput {
  readonly cell: CellIdentity;
  readonly tls: TlsSpec;
  /** Names of the members that have an object. */
  readonly members: readonly string[];
  readonly operatorNamespace: string;
}

/**
 * Members first, since all the others come to them. With `Secret` there is none for applications: whoever makes the
 * certificates makes theirs.
 */
export function certificateHolders(input: HoldersInput): readonly CertificateHolder[] {
  const { cell, tls, members } = input;
  const holders = members.map((member) => memberHolder(cell, tls, member));
  const operator: CertificateHolder = {
    name: "admin/operator",
    kind: "operator",
    member: undefined,
    identity: operatorIdentity(cell.uid),
    dnsNames: [],
    secret: operatorSecret(input),
  };
  if (tls.mode === "Secret") return [...holders, operator];
  const client: CertificateHolder = {
    name: "client/default",
    kind: "client",
    member: undefined,
    identity: clientIdentity(cell.uid),
    dnsNames: [],
    secret: { namespace: cell.namespace, name: clientSecretName(cell.name) },
  };
  return [...holders, operator, client];
}

function memberHolder(cell: CellIdentity, tls: TlsSpec, member: string): CertificateHolder {
  const host = memberHost(member, cell.name, cell.namespace);
  const service = clientHost(cell.name, cell.namespace);
  return {
    name: `member/${member}`,
    kind: "member",
    member,
    identity: memberIdentity(cell.uid, member),
    dnsNames: [
      host,
      service,
      // As Pods of the same namespace, and of others, write it for short.
      clientServiceName(cell.name),
      `${clientServiceName(cell.name)}.${cell.namespace}`,
      // For kubectl port-forward.
      "localhost",
    ],
    secret: { namespace: cell.namespace, name: secretNameOf(tls, member) },
  };
}

/** The operator's own identity: beside the operator, unless somebody else makes it beside the cell. */
function operatorSecret({ cell, tls, operatorNamespace }: HoldersInput): ObjectRef {
  switch (tls.mode) {
    case "Managed":
      return { namespace: operatorNamespace, name: operatorSecretName(cell.uid) };
    case "CertManager":
      return { namespace: cell.namespace, name: operatorCertificateName(cell.name) };
    case "Secret":
      return {
        namespace: cell.namespace,
        name: tls.operatorSecretName ?? operatorCertificateName(cell.name),
      };
  }
}
