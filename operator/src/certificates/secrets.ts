/** Certificates as Secrets, and Secrets as what {@link planRotation} is told of them. */
import type { X509Certificate } from "node:crypto";
import type { Certificate, Secret } from "../api/core.ts";
import { durationMs, durationText } from "../api/duration.ts";
import { cellLabels, LABEL, memberLabels } from "../api/labels.ts";
import type { CellIdentity, Labels } from "../api/labels.ts";
import { authoritySecretName } from "../api/names.ts";
import type { TlsSpec } from "../api/types.ts";
import type { OwnerReference } from "../kube/types.ts";
import type { CertificateHolder } from "./holders.ts";
import type { KeyPair } from "./issue.ts";
import {
  bundleHashOf,
  bundlePem,
  certificatesOf,
  fingerprintOf,
  hasNames,
  isKeyOf,
  signerOf,
} from "./material.ts";
import { renewalMs } from "./rotation.ts";
import type { Authorities, AuthorityFacts, HeldCertificate, RotationPhase } from "./rotation.ts";

/** On a Secret with a certificate: when it was written, RFC 3339. */
const WRITTEN_AT = "lockstep.dev/written-at";
/** On an authority's Secret: "true" asks for another authority before its time. */
export const ROTATE_ANNOTATION = "lockstep.dev/rotate";

/** An authority as it stands in its Secret. */
export interface AuthorityMaterial {
  /** PEM; more than one certificate only when the key is lost. */
  readonly certificates: string;
  /** PEM; undefined: lost. */
  readonly key: string | undefined;
}

export interface AuthorityState {
  readonly phase: RotationPhase;
  readonly current: AuthorityMaterial;
  /** undefined exactly in the phase `steady`. */
  readonly next: AuthorityMaterial | undefined;
}

/** The authorities of a cell, in the operator's namespace: keys of authorities are nowhere else. */
export function authoritySecret(cell: CellIdentity, namespace: string, state: AuthorityState): Secret {
  const { phase, current, next } = state;
  return {
    apiVersion: "v1",
    kind: "Secret",
    type: "Opaque",
    metadata: {
      name: authoritySecretName(cell.uid),
      namespace,
      labels: cellLabels(cell, "authority"),
    },
    data: encode({
      phase,
      "current.crt": current.certificates,
      ...(current.key === undefined ? {} : { "current.key": current.key }),
      ...(next === undefined ? {} : { "next.crt": next.certificates }),
      ...(next?.key === undefined ? {} : { "next.key": next.key }),
    }),
  };
}

/** @throws TypeError for a Secret that somebody else has changed: what to do then is for a person to say */
export function readAuthoritySecret(secret: Secret): AuthorityState {
  const data = decode(secret);
  const phase = data["phase"];
  const current = authorityMaterial(data, "current");
  const next = authorityMaterial(data, "next");
  const { name, namespace } = secret.metadata;
  if (!isPhase(phase) || current === undefined || (phase === "steady") !== (next === undefined)) {
    throw new TypeError(
      `the Secret ${namespace ?? ""}/${name} of the cell's authority is not as the operator wrote it: restore it, or delete it and another authority is made`,
    );
  }
  return { phase, current, next };
}

function authorityMaterial(
  data: Readonly<Record<string, string | undefined>>,
  which: "current" | "next",
): AuthorityMaterial | undefined {
  const certificates = data[`${which}.crt`];
  return certificates === undefined ? undefined : { certificates, key: data[`${which}.key`] };
}

function isPhase(text: string | undefined): text is RotationPhase {
  return text === "steady" || text === "trusting" || text === "reissuing" || text === "retiring";
}

/** @throws TypeError for certificates that cannot be read */
export function authoritiesOf({ phase, current, next }: AuthorityState): Authorities {
  const currentFacts = authorityFacts(current);
  if (phase === "steady") return { phase, current: currentFacts };
  if (next === undefined) throw new TypeError(`there is no next authority in the phase ${phase}`);
  return { phase, current: currentFacts, next: authorityFacts(next) };
}

function authorityFacts({ certificates, key }: AuthorityMaterial): AuthorityFacts {
  const all = certificatesOf(certificates);
  const [first] = all;
  return {
    fingerprints: all.map(fingerprintOf),
    hasKey: first !== undefined && key !== undefined && all.length === 1 && isKeyOf(key, first),
    notBeforeMs: Math.max(...all.map((one) => one.validFromDate.getTime())),
    notAfterMs: Math.min(...all.map((one) => one.validToDate.getTime())),
  };
}

export interface LeafSecretInput {
  readonly cell: CellIdentity;
  readonly holder: CertificateHolder;
  readonly leaf: KeyPair;
  /** Authorities to trust. */
  readonly trust: readonly X509Certificate[];
  readonly nowMs: number;
  /** undefined: no member's, and taken away by the operator. */
  readonly owner: OwnerReference | undefined;
}

/** Secret of one holder: tls.crt, tls.key and ca.crt, as Kubernetes names them. */
export function leafSecret({ cell, holder, leaf, trust, nowMs, owner }: LeafSecretInput): Secret {
  return {
    apiVersion: "v1",
    kind: "Secret",
    type: "kubernetes.io/tls",
    metadata: {
      ...holder.secret,
      labels: holderLabels(cell, holder),
      annotations: { [WRITTEN_AT]: new Date(nowMs).toISOString() },
      ...(owner === undefined ? {} : { ownerReferences: [owner] }),
    },
    data: encode({ "tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": bundlePem(trust) }),
  };
}

/** The leaf that a Secret holds, for a write that keeps it. @returns undefined when there is none */
export function readLeaf(secret: Secret): KeyPair | undefined {
  const data = decode(secret);
  const certificate = data["tls.crt"];
  const key = data["tls.key"];
  return certificate === undefined || key === undefined ? undefined : { certificate, key };
}

/** The authorities that a Secret says are to be trusted; empty when it holds none that can be read. */
export function readTrust(secret: Secret): readonly X509Certificate[] {
  try {
    return certificatesOf(decode(secret)["ca.crt"] ?? "");
  } catch {
    return [];
  }
}

/**
 * What a holder's Secret holds.
 * @param authorities those that may have signed it
 * @returns undefined when there is no certificate that can be read
 */
export function heldCertificate(
  secret: Secret | undefined,
  holder: CertificateHolder,
  authorities: readonly X509Certificate[],
): HeldCertificate | undefined {
  const leaf = secret === undefined ? undefined : readLeaf(secret);
  if (secret === undefined || leaf === undefined) return undefined;
  let certificate: X509Certificate | undefined;
  try {
    [certificate] = certificatesOf(leaf.certificate);
  } catch {
    return undefined;
  }
  if (certificate === undefined) return undefined;
  const signer = signerOf(certificate, authorities);
  const trusted = readTrust(secret).map(fingerprintOf);
  const writtenMs = Date.parse(secret.metadata.annotations?.[WRITTEN_AT] ?? "");
  return {
    leafHash: fingerprintOf(certificate),
    signer: signer === undefined ? undefined : fingerprintOf(signer),
    trusted,
    bundleHash: bundleHashOf(trusted),
    isUsable: hasNames(certificate, holder) && isKeyOf(leaf.key, certificate),
    notBeforeMs: certificate.validFromDate.getTime(),
    notAfterMs: certificate.validToDate.getTime(),
    writtenMs: Number.isNaN(writtenMs) ? certificate.validFromDate.getTime() : writtenMs,
  };
}

/**
 * What is wrong with a Secret that somebody else makes, in a sentence that says what to do.
 * @returns undefined: nothing
 */
export function problemOfSecret(
  secret: Secret | undefined,
  holder: CertificateHolder,
  nowMs: number,
): string | undefined {
  const where = `Secret ${holder.secret.namespace ?? ""}/${holder.secret.name}`;
  const needs = `a certificate with the URI ${holder.identity}${holder.dnsNames.length > 0 ? ` and the DNS names ${holder.dnsNames.join(", ")}` : ""}`;
  if (secret === undefined)
    return `${where} does not exist: it must hold tls.crt, tls.key and ca.crt, with ${needs}`;
  const trust = readTrust(secret);
  if (trust.length === 0)
    return `${where} has no ca.crt with the authorities that sign the cell's certificates`;
  const held = heldCertificate(secret, holder, trust);
  if (held === undefined)
    return `${where} has no tls.crt and tls.key that can be read: it must hold ${needs}`;
  if (!held.isUsable) return `${where} does not fit: it must hold ${needs}, and the key of that certificate`;
  if (nowMs >= held.notAfterMs)
    return `${where} holds a certificate that expired on ${new Date(held.notAfterMs).toISOString()}`;
  if (held.signer === undefined) return `${where} holds a certificate that no authority of its ca.crt signed`;
  return undefined;
}

/** cert-manager's order for one holder's Secret. @param owner undefined: no member's, and taken away by the operator */
export function certManagerCertificate(
  cell: CellIdentity,
  tls: TlsSpec,
  holder: CertificateHolder,
  owner: OwnerReference | undefined,
): Certificate {
  const { issuerRef } = tls;
  if (issuerRef === undefined) throw new TypeError("tls.issuerRef is missing");
  const lifeMs = durationMs(tls.leafDuration);
  const labels = holderLabels(cell, holder);
  return {
    apiVersion: "cert-manager.io/v1",
    kind: "Certificate",
    metadata: { ...holder.secret, labels, ...(owner === undefined ? {} : { ownerReferences: [owner] }) },
    spec: {
      secretName: holder.secret.name,
      duration: durationText(lifeMs),
      renewBefore: durationText(lifeMs - renewalMs({ notBeforeMs: 0, notAfterMs: lifeMs })),
      uris: [holder.identity],
      ...(holder.dnsNames.length === 0 ? {} : { dnsNames: holder.dnsNames }),
      usages: ["digital signature", "client auth", ...(holder.kind === "member" ? ["server auth"] : [])],
      privateKey: { algorithm: "ECDSA", size: 256, rotationPolicy: "Always" },
      issuerRef,
      secretTemplate: { labels },
    },
  };
}

function holderLabels(cell: CellIdentity, { member, kind }: CertificateHolder): Labels {
  if (member === undefined) return cellLabels(cell, kind);
  return { ...memberLabels(cell, member), [LABEL.component]: "certificate" };
}

function encode(data: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(data).map(([key, text]) => [key, Buffer.from(text, "utf8").toString("base64")]),
  );
}

function decode({ data }: Secret): Readonly<Record<string, string | undefined>> {
  return Object.fromEntries(
    Object.entries(data ?? {}).map(([key, text]) => [key, Buffer.from(text, "base64").toString("utf8")]),
  );
}
