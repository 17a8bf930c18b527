/** The words that the parts of the fuzzer share. */
import type { Dice } from "./generate/dice.ts";

/** An input of a decoder, made from the seed. */
export interface Input {
  readonly bytes: Buffer;
  /** It is what an encoder of ours wrote, untouched: then it must be accepted. */
  readonly valid: boolean;
}

/** Wall-clock and memory that one case may take. Both grow with nothing but the length of the input. */
export interface Bounds {
  /** Default {@link CASE_MS_MAX}. */
  readonly ms?: number;
  /** Allocated whatever the input says. Default {@link ALLOCATED_BASE_BYTES}. */
  readonly allocatedBytes?: number;
  /** Allocated per byte of input. Default {@link ALLOCATED_PER_BYTE}. */
  readonly allocatedPerByte?: number;
}

/** A case takes microseconds; this is where a quadratic decoder, not a busy machine, shows. */
export const CASE_MS_MAX = 200;
/** Heap of a case that decodes nothing: errors with their stacks, reused buffers that grew, code being compiled. */
export const ALLOCATED_BASE_BYTES: number = 512 * 1024;
/**
 * A byte of input may become an object: the smallest item of a list takes two bytes and some 300 of heap, for its
 * object, its arrays' slots and its view of the input. What this bound forbids is memory that no byte has paid for.
 */
export const ALLOCATED_PER_BYTE = 512;

/** A decoder under test. Everything it does is a function of the input. */
export interface Target {
  /** Names the case in `--target`; a kept failure is found by it, so it never changes. */
  readonly name: string;
  /** What is decoded, where its bytes come from, and what a refusal is. One line. */
  readonly about: string;
  /** Share of the cases, 1 for a usual target. Slow ones take less. */
  readonly weight: number;
  readonly bounds?: Bounds;
  generate(dice: Dice): Input;
  /** Only this is measured. Whatever it throws besides what {@link refused} knows is a finding. */
  decode(bytes: Buffer): unknown;
  /** Whether an error is the one that this decoder documents. */
  refused(error: unknown): boolean;
  /** Laws about what was accepted: it encodes to something that decodes equal. Throws {@link BrokenLaw}. */
  check?(value: unknown, input: Input): unknown;
}

/** What a decoder accepted contradicts a law. */
export class BrokenLaw extends Error {
  override readonly name = "BrokenLaw";
}

export type FindingKind =
  /** It threw something that it does not document. */
  | "crash"
  /** It took longer than its bound, or did not end at all. */
  | "hang"
  /** It took more memory than its bound. */
  | "memory"
  /** What it accepted breaks a law, or what is valid was refused. */
  | "law";

export interface Finding {
  readonly target: string;
  readonly seed: number;
  readonly index: number;
  readonly kind: FindingKind;
  readonly why: string;
  /** The input, for `kept/`. */
  readonly hex: string;
}

/** The cases of one target, added up. */
export interface Tally {
  readonly target: string;
  cases: number;
  accepted: number;
  refused: number;
  slowestMs: number;
  slowestIndex: number;
  /** Most memory of one case, in bytes beyond what its bound grants per byte of input. */
  allocatedMax: number;
  elapsedMs: number;
}
