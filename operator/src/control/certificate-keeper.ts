import type { Secret } from "../api/core.ts";
import { durationMs } from "../api/duration.ts";
import { CERTIFICATE, SECRET } from "../api/kinds.ts";
import { identityOf, LABEL } from "../api/labels.ts";
import { authoritySecretName } from "../api/names.ts";
import type { CellMember, CoordinationCell } from "../api/types.ts";
import type { AdminCredentials } from "../cell/grpc-admin.ts";
import { certificateHolders } from "../certificates/holders.ts";
import type { CertificateHolder } from "../certificates/holders.ts";
import { rotationInput, secretOfStep } from "../certificates/managed.ts";
import type { FoundCertificates, RotationOptions } from "../certificates/managed.ts";
import { planRotation } from "../certificates/rotation.ts";
import type { RotationInput, RotationStep } from "../certificates/rotation.ts";
import {
  certManagerCertificate,
  heldCertificate,
  problemOfSecret,
  readLeaf,
  readTrust,
} from "../certificates/secrets.ts";
import { KubeError } from "../kube/types.ts";
import type { KubeClient, KubeObject, ObjectRef, OwnerReference } from "../kube/types.ts";
import type { CertificatesView } from "../plan/types.ts";
import { controlledBy } from "../resources/owner.ts";
import type { Answers } from "./ask.ts";
import { belongingOf, disown, isOwned } from "./belonging.ts";
import type { Belonging } from "./belonging.ts";
import { deleteIf } from "./release.ts";

/** Certificates of all cells: what is to be said of them, the next step, and the operator's own credentials. */
export interface CertificateKeeper {
  /** Makes {@link adminCredentials} current. */
  load(cell: CoordinationCell): Promise<void>;
  view(cell: CoordinationCell, members: readonly CellMember[], answers: Answers): Promise<CertificatesView>;
  /** Does what the last {@link view} of the cell found due. */
  advance(cell: CoordinationCell): Promise<void>;
  /** Takes away what no member owns: the authority, the operator's identity and the clients' certificate. */
  release(cell: CoordinationCell): Promise<void>;
  /** Undefined before the first {@link load}, and while there is no Secret. */
  adminCredentials(cellUid: string): AdminCredentials | undefined;
  /** Forgets all cells but these. */
  forget(aliveUids: ReadonlySet<string>): void;
}

export interface CertificateKeeperOptions {
  readonly kube: KubeClient;
  readonly wallMs: () => number;
  readonly monotonicMs: () => number;
  /** Where authorities' keys and the operator's identities are kept. */
  readonly operatorNamespace: string;
}

/** Secrets are read by name, again after so long: somebody may have deleted or renewed one. */
const KNOWN_MS = 10 * 60_000;
/** What is missing is asked for more often: a person may just be making it. */
const MISSING_MS = 5_000;
/** Steps that one action does: at a cell's beginning each member's certificate is one. */
const STEPS_MAX = 32;

interface Timed<T> {
  readonly value: T;
  readonly untilMs: number;
}

interface Foreign {
  readonly problem: string | undefined;
  /** The name is somebody else's. */
  readonly isTaken: boolean;
  readonly notAfterMs: number | undefined;
}

/** A Secret of a name that a holder needs, which is not this cell's: it is never written. */
interface Strange {
  readonly holder: CertificateHolder;
  readonly belonging: Exclude<Belonging, { readonly kind: "ours" }>;
}

/** What the apiserver holds, without what is not this cell's. */
interface Found {
  readonly certificates: FoundCertificates;
  readonly strange: readonly Strange[];
  /** Earlier versions hung the clients' Secret on the cell: see `controlledBy`. */
  readonly owned: readonly Secret[];
}

interface Facts extends Pick<Found, "strange"> {
  readonly input: RotationInput;
  readonly hasOwned: boolean;
  /** Of the spec that they were read under: a person who changes it wants to see what comes of it. */
  readonly generation: number | undefined;
  /** Of all holders, also those of {@link strange}. */
  readonly names: readonly string[];
  /** As {@link RotationInput} has them. */
  readonly holders: readonly CertificateHolder[];
}

/** What is remembered of one cell: facts, and no key but the operator's own. */
interface CellMemory {
  facts: Timed<Facts> | undefined;
  readonly foreign: Map<string, Timed<Foreign>>;
  readonly ordered: Set<string>;
  /** Certificates of cert-manager, by holder, whose names are somebody else's: looked at again when the time is up. */
  readonly refused: Map<string, Timed<string>>;
  credentials: Timed<AdminCredentials | undefined> | undefined;
  /** Of the last view: what `advance` is about. */
  last: { readonly members: readonly CellMember[]; readonly answers: Answers } | undefined;
}

export function createCertificateKeeper(options: CertificateKeeperOptions): CertificateKeeper {
  return new SecretKeeper(options);
}

class SecretKeeper implements CertificateKeeper {
  readonly #options: CertificateKeeperOptions;
  readonly #cells = new Map<string, CellMemory>();

  constructor(options: CertificateKeeperOptions) {
    this.#options = options;
  }

  async load(cell: CoordinationCell): Promise<void> {
    const memory = this.#memoryOf(cell);
    if (this.#isFresh(memory.credentials)) return;
    const holder = this.#holders(cell, []).find(({ kind }) => kind === "operator");
    const secret = holder === undefined ? undefined : await this.#read(holder.secret);
    memory.credentials = this.#timed(secret === undefined ? undefined : credentialsIn(cell, secret));
  }

  adminCredentials(cellUid: string): AdminCredentials | undefined {
    return this.#cells.get(cellUid)?.credentials?.value;
  }

  async view(
    cell: CoordinationCell,
    members: readonly CellMember[],
    answers: Answers,
  ): Promise<CertificatesView> {
    const memory = this.#memoryOf(cell);
    memory.last = { members, answers };
    const holders = this.#holders(cell, namesOf(members));
    if (cell.spec.tls.mode !== "Managed") return this.#viewForeign(cell, memory, holders);
    let facts: Facts;
    try {
      facts = await this.#facts(cell, memory, holders, answers);
    } catch (error) {
      // The authority's Secret is not as it was written: the message says which, and what a person can do.
      if (!(error instanceof TypeError)) throw error;
      return { kind: "waiting", message: error.message, notAfterMs: undefined, due: undefined };
    }
    const { input, strange, hasOwned } = facts;
    const { step, due, waiting } = planRotation(input);
    const isMissing = strange.length > 0 || input.holders.some(({ held }) => held === undefined);
    const mayStep = step !== undefined && !isHeld(step, strange);
    return {
      kind: isMissing ? "waiting" : "ready",
      message:
        strange[0]?.belonging.message ??
        waiting ??
        (isMissing ? "The cell's certificates are being issued." : ""),
      notAfterMs: soonest(input.holders.map(({ held }) => held?.notAfterMs)),
      // Only what can be done now is due: what is waited for is said in the message.
      due: hasOwned ? "issue" : mayStep ? (due ?? "issue") : undefined,
      ...takenOf(strange.find(({ belonging }) => belonging.kind === "taken")?.belonging.message),
    };
  }

  async advance(cell: CoordinationCell): Promise<void> {
    const memory = this.#memoryOf(cell);
    if (memory.last === undefined) return;
    const { members } = memory.last;
    const holders = this.#holders(cell, namesOf(members));
    switch (cell.spec.tls.mode) {
      case "CertManager":
        return this.#order(cell, memory, holders, members);
      case "Secret":
        return;
      case "Managed":
        return this.#issue(cell, memory, holders);
    }
  }

  async release(cell: CoordinationCell): Promise<void> {
    const { kube } = this.#options;
    const { uid } = identityOf(cell);
    const isOurs = ({ metadata }: KubeObject): boolean => metadata.labels?.[LABEL.cellUid] === uid;
    const refs = this.#holders(cell, []).map(({ secret }) => secret);
    if (cell.spec.tls.mode === "CertManager") {
      // Before the Secrets, which cert-manager would otherwise make anew.
      for (const ref of refs) await deleteCertificate(kube, ref, isOurs);
    }
    // With mode Secret they are the user's, and carry no label of ours.
    for (const ref of refs) await deleteIf(kube, { kind: SECRET, ref }, isOurs);
    // Named after the uid.
    await deleteIf(kube, { kind: SECRET, ref: this.#authorityRef(cell) }, () => true);
    this.#cells.delete(uid);
  }

  forget(aliveUids: ReadonlySet<string>): void {
    for (const uid of this.#cells.keys()) if (!aliveUids.has(uid)) this.#cells.delete(uid);
  }

  /** Step by step, each decided on what the apiserver holds then. */
  async #issue(
    cell: CoordinationCell,
    memory: CellMemory,
    holders: readonly CertificateHolder[],
  ): Promise<void> {
    const { kube, operatorNamespace, wallMs } = this.#options;
    const { members, answers } = memory.last ?? { members: [], answers: undefined };
    if (answers === undefined) return;
    memory.facts = undefined;
    for (let steps = 0; steps < STEPS_MAX; steps += 1) {
      const { certificates, strange, owned } = await this.#find(cell, holders, answers);
      for (const secret of owned) await disown(kube, SECRET, secret, identityOf(cell).uid);
      if (owned.length > 0) continue;
      const { step } = planRotation(rotationInput(certificates, rotationOptions(cell, wallMs())));
      if (step === undefined || isHeld(step, strange)) return;
      const secret = await secretOfStep(step, {
        cell: identityOf(cell),
        found: certificates,
        operatorNamespace,
        leafDurationMs: durationMs(cell.spec.tls.leafDuration),
        nowMs: wallMs(),
        ownerOf: (holder) => ownerOf(holder, members),
      });
      if (secret.metadata.resourceVersion === undefined) await kube.create(SECRET, secret);
      else await kube.apply(SECRET, secret);
      memory.credentials = undefined;
      // What members have loaded is told by a later look: a phase never moves on within one action.
      if (step.kind !== "write" && step.kind !== "create-authority") return;
    }
  }

  async #facts(
    cell: CoordinationCell,
    memory: CellMemory,
    holders: readonly CertificateHolder[],
    answers: Answers,
  ): Promise<Facts> {
    const known = memory.facts;
    const isSame =
      this.#isFresh(known) &&
      known.value.generation === cell.metadata.generation &&
      known.value.names.length === holders.length &&
      known.value.names.every((name, index) => name === holders[index]?.name);
    const nowMs = this.#options.wallMs();
    if (isSame) return { ...known.value, input: heardAnew(known.value, answers, nowMs) };
    const { certificates, strange, owned } = await this.#find(cell, holders, answers);
    const input = rotationInput(certificates, rotationOptions(cell, nowMs));
    const isWhole =
      strange.length === 0 &&
      input.authorities !== undefined &&
      input.holders.every(({ held }) => held !== undefined);
    const facts: Facts = {
      input,
      strange,
      hasOwned: owned.length > 0,
      generation: cell.metadata.generation,
      names: holders.map(({ name }) => name),
      holders: certificates.holders,
    };
    memory.facts = this.#timed(facts, isWhole ? KNOWN_MS : MISSING_MS);
    return facts;
  }

  async #find(
    cell: CoordinationCell,
    holders: readonly CertificateHolder[],
    answers: Answers,
  ): Promise<Found> {
    const [authority, ...secrets] = await Promise.all([
      this.#read(this.#authorityRef(cell)),
      ...holders.map(({ secret }) => this.#read(secret)),
    ]);
    const { uid } = identityOf(cell);
    const ours = new Map<string, Secret>();
    const strange: Strange[] = [];
    for (const [index, holder] of holders.entries()) {
      const secret = secrets[index];
      if (secret === undefined) continue;
      const belonging = belongingOf(secret, cell, this.#options.wallMs());
      if (belonging.kind === "ours") ours.set(holder.name, secret);
      else strange.push({ holder, belonging });
    }
    return {
      certificates: {
        authority,
        holders: holders.filter((holder) => !strange.some((other) => other.holder === holder)),
        secrets: ours,
        statuses: answers.statuses,
      },
      strange,
      owned: [...ours.values()].filter((secret) => isOwned(secret, uid)),
    };
  }

  /** Certificates that others make: what is wrong with them, if anything is. */
  async #viewForeign(
    cell: CoordinationCell,
    memory: CellMemory,
    holders: readonly CertificateHolder[],
  ): Promise<CertificatesView> {
    const seen: Foreign[] = [];
    for (const holder of holders) seen.push(await this.#foreign(cell, memory, holder));
    const isDone = ({ name }: CertificateHolder, index: number): boolean =>
      memory.ordered.has(name) || seen[index]?.isTaken === true || this.#isFresh(memory.refused.get(name));
    const taken =
      seen.find(({ isTaken }) => isTaken)?.problem ??
      holders.map(({ name }) => memory.refused.get(name)?.value).find((message) => message !== undefined);
    const problem = taken ?? seen.find((one) => one.problem !== undefined)?.problem;
    return {
      kind: problem === undefined ? "ready" : "waiting",
      message: problem ?? "",
      notAfterMs: soonest(seen.map(({ notAfterMs }) => notAfterMs)),
      due: cell.spec.tls.mode === "CertManager" && !holders.every(isDone) ? "issue" : undefined,
      ...takenOf(taken),
    };
  }

  async #foreign(cell: CoordinationCell, memory: CellMemory, holder: CertificateHolder): Promise<Foreign> {
    const known = memory.foreign.get(holder.name);
    if (this.#isFresh(known)) return known.value;
    const secret = await this.#read(holder.secret);
    const nowMs = this.#options.wallMs();
    const strange = secret === undefined ? undefined : strangeness(cell, secret, nowMs);
    const value: Foreign = {
      problem: strange?.message ?? problemOfSecret(secret, holder, nowMs),
      isTaken: strange !== undefined,
      notAfterMs:
        secret === undefined ? undefined : heldCertificate(secret, holder, readTrust(secret))?.notAfterMs,
    };
    memory.foreign.set(holder.name, this.#timed(value, value.problem === undefined ? KNOWN_MS : MISSING_MS));
    return value;
  }

  /** Asks cert-manager for every holder's certificate; asking again changes nothing. */
  async #order(
    cell: CoordinationCell,
    memory: CellMemory,
    holders: readonly CertificateHolder[],
    members: readonly CellMember[],
  ): Promise<void> {
    const { kube, wallMs } = this.#options;
    const { uid } = identityOf(cell);
    for (const holder of holders) {
      if (memory.ordered.has(holder.name)) continue;
      // cert-manager would write over it.
      if ((await this.#foreign(cell, memory, holder)).isTaken) continue;
      const found = await kube.get(CERTIFICATE, holder.secret);
      const strange = found === undefined ? undefined : strangeness(cell, found, wallMs());
      if (strange !== undefined) {
        memory.refused.set(holder.name, this.#timed(strange.message, MISSING_MS));
        continue;
      }
      if (found !== undefined) await disown(kube, CERTIFICATE, found, uid);
      const owner = ownerOf(holder, members);
      await kube.apply(CERTIFICATE, certManagerCertificate(identityOf(cell), cell.spec.tls, holder, owner));
      memory.refused.delete(holder.name);
      memory.ordered.add(holder.name);
    }
  }

  #holders(cell: CoordinationCell, members: readonly string[]): readonly CertificateHolder[] {
    const { operatorNamespace } = this.#options;
    return certificateHolders({ cell: identityOf(cell), tls: cell.spec.tls, members, operatorNamespace });
  }

  #authorityRef(cell: CoordinationCell): ObjectRef {
    return { namespace: this.#options.operatorNamespace, name: authoritySecretName(identityOf(cell).uid) };
  }

  #read(ref: ObjectRef): Promise<Secret | undefined> {
    return this.#options.kube.get(SECRET, ref);
  }

  #memoryOf(cell: CoordinationCell): CellMemory {
    const { uid } = identityOf(cell);
    let memory = this.#cells.get(uid);
    if (memory === undefined) {
      memory = {
        facts: undefined,
        foreign: new Map(),
        ordered: new Set(),
        refused: new Map(),
        credentials: undefined,
        last: undefined,
      };
      this.#cells.set(uid, memory);
    }
    return memory;
  }

  #isFresh<T>(timed: Timed<T> | undefined): timed is Timed<T> {
    return timed !== undefined && this.#options.monotonicMs() < timed.untilMs;
  }

  #timed<T>(value: T, lastsMs: number = value === undefined ? MISSING_MS : KNOWN_MS): Timed<T> {
    return { value, untilMs: this.#options.monotonicMs() + lastsMs };
  }
}

function rotationOptions({ spec }: CoordinationCell, nowMs: number): RotationOptions {
  return { nowMs, silentOverlapMs: durationMs(spec.tls.clientOverlap) };
}

function credentialsIn(cell: CoordinationCell, secret: Secret): AdminCredentials | undefined {
  const leaf = readLeaf(secret);
  if (leaf === undefined) return undefined;
  const ca = readTrust(secret)
    .map((certificate) => certificate.toString())
    .join("");
  return { cellUid: identityOf(cell).uid, ca, cert: leaf.certificate, key: leaf.key };
}

/**
 * Who has a CellMember. Without one no Pod could use a certificate, and nobody would ever take it away: a member of the
 * configuration that has none any more is replaced.
 */
function namesOf(members: readonly CellMember[]): readonly string[] {
  return members.map(({ metadata }) => metadata.name).sort();
}

/** A member's Secret goes with its CellMember; the others are taken away by {@link CertificateKeeper.release}. */
function ownerOf({ member }: CertificateHolder, members: readonly CellMember[]): OwnerReference | undefined {
  const object = members.find(({ metadata }) => metadata.name === member);
  return object === undefined ? undefined : controlledBy(object);
}

/** While a member's Secret is somebody else's, what it trusts is not known: nothing is done that could part it from the rest. */
function isHeld({ kind }: RotationStep, strange: readonly Strange[]): boolean {
  const isMembers = strange.some(({ holder }) => holder.member !== undefined);
  return isMembers && kind !== "write" && kind !== "create-authority";
}

/** @returns undefined: the object is this cell's, or the user makes such objects */
function strangeness(
  cell: CoordinationCell,
  object: KubeObject,
  nowMs: number,
): Strange["belonging"] | undefined {
  if (cell.spec.tls.mode === "Secret") return undefined;
  const belonging = belongingOf(object, cell, nowMs);
  return belonging.kind === "ours" ? undefined : belonging;
}

function takenOf(message: string | undefined): Pick<CertificatesView, "taken"> {
  return message === undefined ? {} : { taken: message };
}

/** What was read stays; what members have loaded is as they say now. */
function heardAnew({ input, holders }: Facts, answers: Answers, nowMs: number): RotationInput {
  return {
    ...input,
    nowMs,
    holders: input.holders.map((holder, index) => {
      const tls = answers.statuses.get(holders[index]?.member ?? "")?.tls;
      if (holder.loaded === "silent") return holder;
      const { name, held } = holder;
      if (tls === undefined) return { name, held, loaded: undefined };
      const { bundleHash, leafHash, reloadError } = tls;
      return { name, held, loaded: { bundleHash, leafHash }, reloadError };
    }),
  };
}

async function deleteCertificate(
  kube: KubeClient,
  ref: ObjectRef,
  may: (object: KubeObject) => boolean,
): Promise<void> {
  try {
    await deleteIf(kube, { kind: CERTIFICATE, ref }, may);
  } catch (error) {
    // Where cert-manager is gone there is no such kind, and nothing of it.
    if (!(error instanceof KubeError) || error.reason !== "not-found") throw error;
  }
}

function soonest(times: readonly (number | undefined)[]): number | undefined {
  const known = times.filter((time) => time !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}
