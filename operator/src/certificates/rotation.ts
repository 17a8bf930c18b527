/**
 * When certificates are made anew, and in which order, so that at no moment two members of a cell do not trust each
 * other. Pure: what was found goes in, at most one step comes out; it remembers nothing but the phase, which stands in
 * the authority's Secret and moves in one write.
 *
 *   steady     leaves of the current authority, which alone is trusted
 *   trusting   leaves of the current one; both are trusted
 *   reissuing  leaves of the next one; both are trusted
 *   retiring   leaves of the next one, which alone is trusted; it is the current one when the last member says so
 *
 * Two neighbouring phases get on with each other whatever either has loaded, and the phase moves on only when every
 * member, learners and newcomers too, says that it has loaded what the phase wants.
 */

export type RotationPhase = "steady" | "trusting" | "reissuing" | "retiring";

/** What `CertificatesView` calls a step. */
export type DueStep = "issue" | "trust-both" | "reissue-leaves" | "trust-new-only";

/** An authority is named by the SHA-256 of its certificate, in hex. */
export interface AuthorityFacts {
  /** More than one only for authorities whose key was lost in the middle of a rotation: all of them are trusted. */
  readonly fingerprints: readonly string[];
  readonly hasKey: boolean;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

export type Authorities =
  | { readonly phase: "steady"; readonly current: AuthorityFacts }
  | {
      readonly phase: "trusting" | "reissuing" | "retiring";
      readonly current: AuthorityFacts;
      readonly next: AuthorityFacts;
    };

/** What a holder's Secret holds. */
export interface HeldCertificate {
  readonly leafHash: string;
  /** Fingerprint of the authority that signed it; undefined: none of those in question. */
  readonly signer: string | undefined;
  /** Fingerprints of ca.crt. */
  readonly trusted: readonly string[];
  readonly bundleHash: string;
  /** Whether it has the names, and the key, that its holder needs. */
  readonly isUsable: boolean;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** When the Secret was last written. */
  readonly writtenMs: number;
}

/** Somebody with a certificate of the cell. */
export interface Holder {
  /** `member/NAME`, `client/default` or `admin/operator`. */
  readonly name: string;
  /** undefined: there is no Secret yet, or it cannot be read. */
  readonly held: HeldCertificate | undefined;
  /**
   * What it says that it has loaded. `silent`: it is one of those that say nothing (applications), so it is given
   * time instead. undefined: it should say, and did not.
   */
  readonly loaded: { readonly bundleHash: string; readonly leafHash: string } | "silent" | undefined;
  /** When it said that it could not load what it was given: why. Default: none. */
  readonly reloadError?: string;
}

export interface RotationInput {
  /** undefined: there is no such Secret; never because it could not be read. */
  readonly authorities: Authorities | undefined;
  /** Every member that has an object in Kubernetes or a place in the cell's configuration, the client and the operator. */
  readonly holders: readonly Holder[];
  readonly nowMs: number;
  /** Time that those who say nothing have to load what their Secret holds. */
  readonly silentOverlapMs: number;
  /** Somebody asks for a new authority before its time. */
  readonly isRequested: boolean;
  /** From fingerprints to the hash that members tell of them. */
  readonly bundleHashOf: (fingerprints: readonly string[]) => string;
}

export type RotationStep =
  /** A first authority. */
  | { readonly kind: "create-authority" }
  /**
   * The authority's Secret is lost, or is an older one than before, while certificates of another authority are in use:
   * what holders trust is trusted on, a next authority is made and the phase is `trusting`.
   */
  | { readonly kind: "adopt-authority"; readonly trusted: readonly string[] }
  /** Makes a next authority; the phase is `trusting`. */
  | { readonly kind: "begin" }
  /** Writes a holder's Secret: these authorities to trust, and a new leaf unless it stays. */
  | {
      readonly kind: "write";
      readonly holder: string;
      readonly trust: readonly string[];
      readonly leaf: "keep" | "current" | "next";
    }
  | { readonly kind: "advance"; readonly to: "reissuing" | "retiring" }
  /** The next authority is the current one; the phase is `steady`. */
  | { readonly kind: "finish" };

export interface RotationPlan {
  /** undefined: nothing to do now. */
  readonly step: RotationStep | undefined;
  /** What is under way; undefined: nothing. */
  readonly due: DueStep | undefined;
  /** What is waited for, in a sentence; undefined: nothing. */
  readonly waiting: string | undefined;
  /** When to look again though nothing changes; undefined: not by time. */
  readonly lookAgainMs: number | undefined;
}

const DUE: Readonly<Record<RotationPhase, DueStep>> = {
  steady: "issue",
  trusting: "trust-both",
  reissuing: "reissue-leaves",
  retiring: "trust-new-only",
};

export function planRotation(input: RotationInput): RotationPlan {
  const { authorities } = input;
  if (authorities === undefined || isForeign(input, authorities)) {
    return doing("issue", firstAuthority(input));
  }
  const due = DUE[authorities.phase];
  for (const holder of input.holders) {
    const wanted = wantedOf(input, authorities, holder);
    if (wanted.kind === "write") return doing(holder.held === undefined ? "issue" : due, wanted);
    if (wanted.kind === "wait") return waiting(due, wanted.why);
  }
  if (authorities.phase === "steady") return beginIfDue(input, authorities.current);
  const blocker = unsettled(input, authorities);
  if (blocker !== undefined) return blocker;
  switch (authorities.phase) {
    case "trusting":
      return doing(due, { kind: "advance", to: "reissuing" });
    case "reissuing":
      return doing(due, { kind: "advance", to: "retiring" });
    case "retiring":
      return doing(due, { kind: "finish" });
  }
}

/** When a certificate is due to be made anew: after two thirds of its life. */
export function renewalMs({ notBeforeMs, notAfterMs }: Validity): number {
  return notBeforeMs + Math.floor(((notAfterMs - notBeforeMs) * 2) / 3);
}

/** Milliseconds since 1970. */
export interface Validity {
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

function firstAuthority({ holders }: RotationInput): RotationStep {
  const trusted = new Set(holders.flatMap(({ held }) => held?.trusted ?? []));
  return trusted.size === 0
    ? { kind: "create-authority" }
    : { kind: "adopt-authority", trusted: [...trusted].sort() };
}

/**
 * Whether somebody holds a certificate that cannot have been issued by this phase or the one before it, as after the
 * Secret was restored from a backup. To issue anew from what it knows would part those who have it already from those
 * who have not.
 */
function isForeign({ holders }: RotationInput, authorities: Authorities): boolean {
  const { phase, current } = authorities;
  const isNextUsed = phase === "reissuing" || phase === "retiring";
  const known = new Set([...current.fingerprints, ...(isNextUsed ? authorities.next.fingerprints : [])]);
  return holders.some(
    ({ held }) =>
      held?.isUsable === true &&
      (held.signer === undefined || !known.has(held.signer)) &&
      held.trusted.some((fingerprint) => !known.has(fingerprint)),
  );
}

function beginIfDue({ isRequested, nowMs }: RotationInput, current: AuthorityFacts): RotationPlan {
  if (isRequested || !current.hasKey || nowMs >= renewalMs(current)) {
    return doing("trust-both", { kind: "begin" });
  }
  return { step: undefined, due: undefined, waiting: undefined, lookAgainMs: undefined };
}

/** Whom a holder is to trust in this phase. */
function trustOf(authorities: Authorities): readonly string[] {
  switch (authorities.phase) {
    case "steady":
      return authorities.current.fingerprints;
    case "trusting":
    case "reissuing":
      return [...authorities.current.fingerprints, ...authorities.next.fingerprints];
    case "retiring":
      return authorities.next.fingerprints;
  }
}

type Wanted =
  | Extract<RotationStep, { readonly kind: "write" }>
  | { readonly kind: "nothing" }
  | { readonly kind: "wait"; readonly why: string };

function wantedOf(input: RotationInput, authorities: Authorities, holder: Holder): Wanted {
  const { held } = holder;
  const trust = trustOf(authorities);
  const isNext = authorities.phase === "reissuing" || authorities.phase === "retiring";
  const signer = isNext ? authorities.next : authorities.current;
  const needsLeaf =
    held === undefined ||
    !held.isUsable ||
    held.signer === undefined ||
    !signer.fingerprints.includes(held.signer) ||
    input.nowMs >= renewalMs(held);
  if (needsLeaf && signer.hasKey) {
    return { kind: "write", holder: holder.name, trust, leaf: isNext ? "next" : "current" };
  }
  if (needsLeaf && isNext) {
    const remedy = "delete the authority's Secret, and another authority is made";
    return { kind: "wait", why: `${holder.name} needs a certificate, and the key for it is lost: ${remedy}` };
  }
  if (held !== undefined && held.bundleHash !== input.bundleHashOf(trust)) {
    return { kind: "write", holder: holder.name, trust, leaf: "keep" };
  }
  // Without the current key: the next phase brings it a leaf of the next authority.
  return { kind: "nothing" };
}

/** What is to be waited for until everybody has loaded what this phase wants; undefined: nothing. */
function unsettled(input: RotationInput, authorities: Authorities): RotationPlan | undefined {
  const due = DUE[authorities.phase];
  let lookAgainMs = 0;
  const waits: string[] = [];
  for (const holder of input.holders) {
    const { name, held, loaded, reloadError } = holder;
    if (held === undefined) {
      // A newcomer: it speaks to nobody before it has a Secret, and that one will be of the phase of then.
      if (loaded !== undefined && loaded !== "silent") waits.push(`${name} runs, and its Secret is lost`);
    } else if (loaded === "silent") {
      const leftMs = held.writtenMs + input.silentOverlapMs - input.nowMs;
      if (leftMs > 0) waits.push(`${name} has time to load it`);
      lookAgainMs = Math.max(lookAgainMs, leftMs);
    } else if (loaded === undefined) {
      waits.push(`${name} does not say which certificates it has loaded`);
    } else if (loaded.bundleHash !== held.bundleHash || loaded.leafHash !== held.leafHash) {
      const why = reloadError === undefined || reloadError === "" ? "" : `: ${reloadError}`;
      waits.push(`${name} has not loaded its certificates yet${why}`);
    }
  }
  if (waits.length === 0) return undefined;
  return { ...waiting(due, waits.join("; ")), lookAgainMs: lookAgainMs > 0 ? lookAgainMs : undefined };
}

function doing(due: DueStep, step: RotationStep): RotationPlan {
  return { step, due, waiting: undefined, lookAgainMs: undefined };
}

function waiting(due: DueStep, why: string): RotationPlan {
  return { step: undefined, due, waiting: why, lookAgainMs: undefined };
}
