import type { Secret } from "../api/core.ts";
import { durationMs } from "../api/duration.ts";
import { CERTIFICATE, SECRET } from "../api/kinds.ts";
import { identityOf } from "../api/labels.ts";
import { authoritySecretName } from "../api/names.ts";
import type { CellMember, CoordinationCell } from "../api/types.ts";
import type { AdminCredentials } from "../cell/grpc-admin.ts";
import { certificateHolders } from "../certificates/holders.ts";
import type { CertificateHolder } from "../certificates/holders.ts";
import { rotationInput, secretOfStep } from "../certificates/managed.ts";
import type { FoundCertificates, RotationOptions } from "../certificates/managed.ts";
import { planRotation } from "../certificates/rotation.ts";
import type { RotationInput } from "../certificates/rotation.ts";
import {
  certManagerCertificate,
  heldCertificate,
  problemOfSecret,
  readLeaf,
  readTrust,
} from "../certificates/secrets.ts";
import type { KubeClient, ObjectRef, OwnerReference } from "../kube/types.ts";
import type { CertificatesView } from "../plan/types.ts";
import { controlledBy } from "../resources/owner.ts";
import type { Answers } from "./ask.ts";

/** Certificates of all cells: what is to be said of them, the next step, and the operator's own credentials. */
export interface CertificateKeeper {
  /** Makes {@link adminCredentials} current. */
  load(cell: CoordinationCell): Promise<void>;
  view(cell: CoordinationCell, members: readonly CellMember[], answers: Answers): Promise<CertificatesView>;
  /** Does what the last {@link view} of the cell found due. */
  advance(cell: CoordinationCell): Promise<void>;
  /** Takes away what stands in the operator's own namespace: owner references do not reach across namespaces. */
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
const KNOWN_MS = 5 * 60_000;
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
  readonly notAfterMs: number | undefined;
}

/** What is remembered of one cell: facts, and no key but the operator's own. */
interface CellMemory {
  facts: Timed<RotationInput> | undefined;
  /** Of the spec that the facts were read under: a person who changes it wants to see what comes of it. */
  generation: number | undefined;
  readonly foreign: Map<string, Timed<Foreign>>;
  readonly ordered: Set<string>;
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
    const holders = this.#holders(cell, namesOf(members, answers));
    if (cell.spec.tls.mode !== "Managed") return this.#viewForeign(cell, memory, holders);
    let input: RotationInput;
    try {
      input = await this.#facts(cell, memory, holders, answers);
    } catch (error) {
      // The authority's Secret is not as it was written: the message says which, and what a person can do.
      if (!(error instanceof TypeError)) throw error;
      return { kind: "waiting", message: error.message, notAfterMs: undefined, due: undefined };
    }
    const { step, due, waiting } = planRotation(input);
    const isMissing = input.holders.some(({ held }) => held === undefined);
    return {
      kind: isMissing ? "waiting" : "ready",
      message: waiting ?? (isMissing ? "The cell's certificates are being issued." : ""),
      notAfterMs: soonest(input.holders.map(({ held }) => held?.notAfterMs)),
      // Only what can be done now is due: what is waited for is said in the message.
      due: step === undefined ? undefined : (due ?? "issue"),
    };
  }

  async advance(cell: CoordinationCell): Promise<void> {
    const memory = this.#memoryOf(cell);
    if (memory.last === undefined) return;
    const { members, answers } = memory.last;
    const holders = this.#holders(cell, namesOf(members, answers));
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
    const { kube, operatorNamespace } = this.#options;
    const { uid, namespace } = identityOf(cell);
    const elsewhere = this.#holders(cell, [])
      .map(({ secret }) => secret)
      .filter((ref) => ref.namespace === operatorNamespace && ref.namespace !== namespace);
    for (const ref of [this.#authorityRef(cell), ...elsewhere]) {
      const secret = await this.#read(ref);
      if (secret?.metadata.uid !== undefined) await kube.delete(SECRET, ref, { uid: secret.metadata.uid });
    }
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
      const found = await this.#find(cell, holders, answers);
      const { step } = planRotation(rotationInput(found, rotationOptions(cell, wallMs())));
      if (step === undefined) return;
      const secret = await secretOfStep(step, {
        cell: identityOf(cell),
        found,
        operatorNamespace,
        leafDurationMs: durationMs(cell.spec.tls.leafDuration),
        nowMs: wallMs(),
        ownerOf: (holder) => ownerOf(cell, holder, members),
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
  ): Promise<RotationInput> {
    const known = memory.facts;
    const isSame =
      this.#isFresh(known) &&
      memory.generation === cell.metadata.generation &&
      known.value.holders.length === holders.length &&
      known.value.holders.every(({ name }, index) => name === holders[index]?.name);
    const nowMs = this.#options.wallMs();
    if (!isSame) {
      const input = rotationInput(await this.#find(cell, holders, answers), rotationOptions(cell, nowMs));
      memory.generation = cell.metadata.generation;
      const isWhole =
        input.authorities !== undefined && input.holders.every(({ held }) => held !== undefined);
      memory.facts = this.#timed(input, isWhole ? KNOWN_MS : MISSING_MS);
      return input;
    }
    return {
      ...known.value,
      nowMs,
      holders: known.value.holders.map((holder, index) => {
        const tls = answers.statuses.get(holders[index]?.member ?? "")?.tls;
        if (holder.loaded === "silent") return holder;
        const { name, held } = holder;
        if (tls === undefined) return { name, held, loaded: undefined };
        const { bundleHash, leafHash, reloadError } = tls;
        return { name, held, loaded: { bundleHash, leafHash }, reloadError };
      }),
    };
  }

  async #find(
    cell: CoordinationCell,
    holders: readonly CertificateHolder[],
    answers: Answers,
  ): Promise<FoundCertificates> {
    const [authority, ...secrets] = await Promise.all([
      this.#read(this.#authorityRef(cell)),
      ...holders.map(({ secret }) => this.#read(secret)),
    ]);
    const found = holders.flatMap(({ name }, index): [string, Secret][] => {
      const secret = secrets[index];
      return secret === undefined ? [] : [[name, secret]];
    });
    return { authority, holders, secrets: new Map(found), statuses: answers.statuses };
  }

  /** Certificates that others make: what is wrong with them, if anything is. */
  async #viewForeign(
    cell: CoordinationCell,
    memory: CellMemory,
    holders: readonly CertificateHolder[],
  ): Promise<CertificatesView> {
    const seen: Foreign[] = [];
    for (const holder of holders) seen.push(await this.#foreign(memory, holder));
    const problem = seen.find((one) => one.problem !== undefined)?.problem;
    const isOrdered = holders.every(({ name }) => memory.ordered.has(name));
    return {
      kind: problem === undefined ? "ready" : "waiting",
      message: problem ?? "",
      notAfterMs: soonest(seen.map(({ notAfterMs }) => notAfterMs)),
      due: cell.spec.tls.mode === "CertManager" && !isOrdered ? "issue" : undefined,
    };
  }

  async #foreign(memory: CellMemory, holder: CertificateHolder): Promise<Foreign> {
    const known = memory.foreign.get(holder.name);
    if (this.#isFresh(known)) return known.value;
    const secret = await this.#read(holder.secret);
    const value: Foreign = {
      problem: problemOfSecret(secret, holder, this.#options.wallMs()),
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
    for (const holder of holders) {
      if (memory.ordered.has(holder.name)) continue;
      const owner = ownerOf(cell, holder, members) ?? controlledBy(cell);
      const object = certManagerCertificate(identityOf(cell), cell.spec.tls, holder, owner);
      await this.#options.kube.apply(CERTIFICATE, object);
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
        generation: undefined,
        foreign: new Map(),
        ordered: new Set(),
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

function namesOf(members: readonly CellMember[], answers: Answers): readonly string[] {
  const configured = (answers.configuration?.members ?? []).map(({ name }) => name);
  return [...new Set([...members.map(({ metadata }) => metadata.name), ...configured])].sort();
}

/** A member's Secret goes with its CellMember, the others with the cell; across namespaces nothing can own. */
function ownerOf(
  cell: CoordinationCell,
  holder: CertificateHolder,
  members: readonly CellMember[],
): OwnerReference | undefined {
  if (holder.secret.namespace !== cell.metadata.namespace) return undefined;
  const member = members.find(({ metadata }) => metadata.name === holder.member);
  return controlledBy(member ?? cell);
}

function soonest(times: readonly (number | undefined)[]): number | undefined {
  const known = times.filter((time) => time !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}
