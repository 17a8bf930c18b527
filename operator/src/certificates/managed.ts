/**
 * Certificates that the operator issues itself: what was found in Kubernetes and heard from members becomes the input of
 * {@link planRotation}, and its step becomes the one Secret that is to be written.
 */
import type { X509Certificate } from "node:crypto";
import type { Secret } from "../api/core.ts";
import type { CellIdentity } from "../api/labels.ts";
import type { MemberStatus } from "../cell/types.ts";
import type { OwnerReference } from "../kube/types.ts";
import type { CertificateHolder } from "./holders.ts";
import { createAuthority, issueLeaf } from "./issue.ts";
import type { KeyPair } from "./issue.ts";
import { bundleHashOf, bundlePem, certificatesOf, fingerprintOf } from "./material.ts";
import type { Holder, RotationInput, RotationStep } from "./rotation.ts";
import {
  authoritiesOf,
  authoritySecret,
  heldCertificate,
  leafSecret,
  readAuthoritySecret,
  readLeaf,
  readTrust,
  ROTATE_ANNOTATION,
} from "./secrets.ts";
import type { AuthorityMaterial, AuthorityState } from "./secrets.ts";

/** Ten years; it is followed by another one after two thirds of them. */
export const AUTHORITY_DURATION_MS: number = 10 * 365 * 24 * 3_600_000;

/** Everything is read from the apiserver itself: absence in a cache proves nothing. */
export interface FoundCertificates {
  readonly authority: Secret | undefined;
  readonly holders: readonly CertificateHolder[];
  /** By the holder's name; absent: there is no such Secret. */
  readonly secrets: ReadonlyMap<string, Secret>;
  /** By the member's name; absent: it did not answer. */
  readonly statuses: ReadonlyMap<string, MemberStatus>;
}

export interface RotationOptions {
  readonly nowMs: number;
  /** What `spec.tls.clientOverlap` says. */
  readonly silentOverlapMs: number;
}

/** @throws TypeError when the authority's Secret is not as the operator wrote it */
export function rotationInput(found: FoundCertificates, options: RotationOptions): RotationInput {
  const state = found.authority === undefined ? undefined : readAuthoritySecret(found.authority);
  const candidates = state === undefined ? [...trustedAnywhere(found).values()] : certificatesIn(state);
  return {
    authorities: state === undefined ? undefined : authoritiesOf(state),
    holders: found.holders.map((holder) => holderFacts(found, holder, candidates)),
    nowMs: options.nowMs,
    silentOverlapMs: options.silentOverlapMs,
    isRequested: found.authority?.metadata.annotations?.[ROTATE_ANNOTATION] === "true",
    bundleHashOf,
  };
}

function holderFacts(
  { secrets, statuses }: FoundCertificates,
  holder: CertificateHolder,
  candidates: readonly X509Certificate[],
): Holder {
  const { name, member } = holder;
  const held = heldCertificate(secrets.get(name), holder, candidates);
  if (member === undefined) return { name, held, loaded: "silent" };
  const tls = statuses.get(member)?.tls;
  if (tls === undefined) return { name, held, loaded: undefined };
  const { bundleHash, leafHash, reloadError } = tls;
  return { name, held, loaded: { bundleHash, leafHash }, reloadError };
}

function certificatesIn({ current, next }: AuthorityState): readonly X509Certificate[] {
  return [
    ...certificatesOf(current.certificates),
    ...(next === undefined ? [] : certificatesOf(next.certificates)),
  ];
}

/** By fingerprint. */
function trustedAnywhere({ secrets }: FoundCertificates): ReadonlyMap<string, X509Certificate> {
  const all = [...secrets.values()].flatMap(readTrust);
  return new Map(all.map((certificate) => [fingerprintOf(certificate), certificate]));
}

export interface WriteInput {
  readonly cell: CellIdentity;
  readonly found: FoundCertificates;
  readonly operatorNamespace: string;
  readonly leafDurationMs: number;
  /** Default: {@link AUTHORITY_DURATION_MS}. */
  readonly authorityDurationMs?: number;
  readonly nowMs: number;
  /** Owner of a holder's Secret; undefined: it is no member's, and the operator takes it away. */
  readonly ownerOf: (holder: CertificateHolder) => OwnerReference | undefined;
}

/**
 * The one Secret that a step writes. With a resourceVersion it takes the place of what was found, and only of that;
 * without one it is created and must not exist yet. So of two operators that planned on the same, one is refused.
 */
export async function secretOfStep(step: RotationStep, input: WriteInput): Promise<Secret> {
  if (step.kind === "write") return leafSecretOfStep(step, input);
  const { cell, operatorNamespace, found } = input;
  const state = await stateAfter(step, input);
  const secret = inPlaceOf(authoritySecret(cell, operatorNamespace, state), found.authority);
  if (step.kind !== "begin") return secret;
  // A request is granted once: left as it stands, it would ask for the next authority as soon as this one is in use.
  const { metadata } = secret;
  return {
    ...secret,
    metadata: { ...metadata, annotations: { ...metadata.annotations, [ROTATE_ANNOTATION]: "false" } },
  };
}

async function stateAfter(
  step: Exclude<RotationStep, { readonly kind: "write" }>,
  input: WriteInput,
): Promise<AuthorityState> {
  switch (step.kind) {
    case "create-authority":
      return { phase: "steady", current: await newAuthority(input), next: undefined };
    case "adopt-authority": {
      const certificates = bundlePem([...trustedAnywhere(input.found).values()]);
      return {
        phase: "trusting",
        current: { certificates, key: undefined },
        next: await newAuthority(input),
      };
    }
    case "begin":
      return { phase: "trusting", current: stateOf(input).current, next: await newAuthority(input) };
    case "advance":
      return { ...stateOf(input), phase: step.to };
    case "finish": {
      const { next } = stateOf(input);
      if (next === undefined) throw new TypeError("there is no next authority to finish with");
      return { phase: "steady", current: next, next: undefined };
    }
  }
}

async function newAuthority(input: WriteInput): Promise<AuthorityMaterial> {
  const { cell, nowMs, authorityDurationMs = AUTHORITY_DURATION_MS } = input;
  const made = await createAuthority({ cellUid: cell.uid, nowMs, durationMs: authorityDurationMs });
  return { certificates: made.certificate, key: made.key };
}

function stateOf({ found }: WriteInput): AuthorityState {
  if (found.authority === undefined) throw new TypeError("there is no authority");
  return readAuthoritySecret(found.authority);
}

async function leafSecretOfStep(
  step: Extract<RotationStep, { readonly kind: "write" }>,
  input: WriteInput,
): Promise<Secret> {
  const { cell, found, nowMs, ownerOf } = input;
  const holder = found.holders.find(({ name }) => name === step.holder);
  if (holder === undefined) throw new TypeError(`${step.holder} is no holder of a certificate`);
  const state = stateOf(input);
  const before = found.secrets.get(holder.name);
  const leaf =
    step.leaf === "keep" ? before && readLeaf(before) : await newLeaf(state[step.leaf], holder, input);
  if (leaf === undefined) throw new TypeError(`${step.holder} has no certificate that could be kept`);
  const trust = certificatesIn(state).filter((one) => step.trust.includes(fingerprintOf(one)));
  const secret = leafSecret({ cell, holder, leaf, trust, nowMs, owner: ownerOf(holder) });
  return inPlaceOf(secret, before);
}

async function newLeaf(
  authority: AuthorityMaterial | undefined,
  holder: CertificateHolder,
  { nowMs, leafDurationMs }: WriteInput,
): Promise<KeyPair> {
  if (authority?.key === undefined) throw new TypeError("the authority's key is lost");
  return issueLeaf(
    { certificate: authority.certificates, key: authority.key },
    {
      identity: holder.identity,
      dnsNames: holder.dnsNames,
      isServer: holder.kind === "member",
      nowMs,
      durationMs: leafDurationMs,
    },
  );
}

function inPlaceOf(secret: Secret, before: Secret | undefined): Secret {
  const { resourceVersion } = before?.metadata ?? {};
  return resourceVersion === undefined
    ? secret
    : { ...secret, metadata: { ...secret.metadata, resourceVersion } };
}
