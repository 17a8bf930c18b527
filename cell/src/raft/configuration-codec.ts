/**
 * The bytes of a configuration change (the data of a `configuration` entry) and of a configuration (in snapshots and
 * in the store's meta row). `FORMAT.md` beside this file describes both.
 */
import { ConfigurationError, describeFlaw } from "./configuration.ts";
import type { Configuration, ConfigurationChange, ConfigurationStep, MemberId } from "./types.ts";

const CHANGE_VERSION = 1;
const CONFIGURATION_VERSION = 1;
const AUTO_LEAVE_FLAG = 1;

const TRANSITIONS = ["auto", "joint-implicit", "joint-explicit"] as const;
const STEP_KINDS = ["add-voter", "add-learner", "remove"] as const;

/** Bounds a decoder's work on hostile bytes; far above any real cell. */
const LIST_LENGTH_MAX = 1_024;

/** @returns the data of a `configuration` entry */
export function encodeConfigurationChange(change: ConfigurationChange): Uint8Array {
  const writer = new Writer();
  writer.byte(CHANGE_VERSION);
  writer.byte(TRANSITIONS.indexOf(change.transition));
  writer.number(change.steps.length);
  for (const step of change.steps) {
    writer.byte(STEP_KINDS.indexOf(step.kind));
    writer.number(step.id);
  }
  writer.bytes(change.context);
  return writer.finish();
}

/**
 * The context is a view of `data`, not a copy.
 *
 * @throws ConfigurationError `malformed`: an unknown version (a newer member wrote it) or damaged bytes; fatal for the
 * reader, never to be skipped (R58)
 */
export function decodeConfigurationChange(data: Uint8Array): ConfigurationChange {
  const reader = new Reader(data);
  reader.version(CHANGE_VERSION);
  const transition = reader.oneOf(TRANSITIONS);
  const steps: ConfigurationStep[] = [];
  for (let left = reader.length(); left > 0; left--) {
    const kind = reader.oneOf(STEP_KINDS);
    steps.push({ kind, id: reader.number() as MemberId });
  }
  const context = reader.bytes();
  reader.end();
  return { transition, steps, context };
}

/** Exact: {@link decodeConfiguration} gives back an equal configuration (R32). */
export function encodeConfiguration(configuration: Configuration): Uint8Array {
  const writer = new Writer();
  writer.byte(CONFIGURATION_VERSION);
  writer.byte(configuration.autoLeave ? AUTO_LEAVE_FLAG : 0);
  writer.ids(configuration.voters);
  writer.ids(configuration.outgoing);
  writer.ids(configuration.learners);
  writer.ids(configuration.learnersNext);
  return writer.finish();
}

/** @throws ConfigurationError `malformed`, also when the lists contradict each other */
export function decodeConfiguration(data: Uint8Array): Configuration {
  const reader = new Reader(data);
  reader.version(CONFIGURATION_VERSION);
  const flags = reader.byte();
  if ((flags & ~AUTO_LEAVE_FLAG) !== 0) throw malformed(`unknown flags ${flags}`);
  const configuration: Configuration = {
    voters: reader.ids(),
    outgoing: reader.ids(),
    learners: reader.ids(),
    learnersNext: reader.ids(),
    autoLeave: flags === AUTO_LEAVE_FLAG,
  };
  reader.end();
  const flaw = describeFlaw(configuration);
  if (flaw !== undefined) throw malformed(flaw);
  return configuration;
}

function malformed(message: string): ConfigurationError {
  return new ConfigurationError("malformed", message);
}

class Writer {
  readonly #bytes: number[] = [];

  byte(value: number): void {
    this.#bytes.push(value);
  }

  /** Little-endian base 128. By division, since ids may pass 2^32. */
  number(value: number): void {
    let rest = value;
    while (rest >= 128) {
      this.#bytes.push((rest % 128) + 128);
      rest = Math.floor(rest / 128);
    }
    this.#bytes.push(rest);
  }

  bytes(value: Uint8Array): void {
    this.number(value.length);
    for (const byte of value) this.#bytes.push(byte);
  }

  ids(ids: readonly MemberId[]): void {
    this.number(ids.length);
    for (const id of ids) this.number(id);
  }

  finish(): Uint8Array {
    return Uint8Array.from(this.#bytes);
  }
}

class Reader {
  readonly #data: Uint8Array;
  #at = 0;

  constructor(data: Uint8Array) {
    this.#data = data;
  }

  version(known: number): void {
    const version = this.byte();
    if (version !== known) throw malformed(`version ${version} is not known, only ${known}`);
  }

  byte(): number {
    const value = this.#data[this.#at];
    if (value === undefined) throw malformed("the bytes end too soon");
    this.#at++;
    return value;
  }

  number(): number {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.byte();
      value += (byte % 128) * scale;
      if (!Number.isSafeInteger(value)) throw malformed("a number passes 2^53");
      if (byte < 128) return value;
    }
  }

  length(): number {
    const length = this.number();
    if (length > LIST_LENGTH_MAX) throw malformed(`a list of ${length}, more than ${LIST_LENGTH_MAX}`);
    return length;
  }

  oneOf<T>(values: readonly T[]): T {
    const code = this.byte();
    const value = values[code];
    if (value === undefined) throw malformed(`unknown code ${code}`);
    return value;
  }

  bytes(): Uint8Array {
    const length = this.number();
    if (length > this.#data.length - this.#at) throw malformed("the bytes end too soon");
    this.#at += length;
    return this.#data.subarray(this.#at - length, this.#at);
  }

  ids(): MemberId[] {
    const ids: MemberId[] = [];
    for (let left = this.length(); left > 0; left--) ids.push(this.number() as MemberId);
    return ids;
  }

  end(): void {
    if (this.#at !== this.#data.length) throw malformed("bytes left over");
  }
}
