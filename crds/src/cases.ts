// Good and bad objects, and what an apiserver must say to them (testdata/cases.yaml).
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";

export interface CaseObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: unknown;
}

export interface Case {
  readonly case: string;
  /** Must be accepted before `object` takes its place. Absent: `object` is created. */
  readonly first?: CaseObject;
  readonly object: CaseObject;
  /** Fragment of the apiserver's message. Absent: the object is accepted. */
  readonly refused?: string;
  /** What fields read afterwards, by path. Absent: not looked at. */
  readonly holds?: Readonly<Record<string, unknown>>;
}

export function readCases(): readonly Case[] {
  const file = join(import.meta.dirname, "..", "testdata", "cases.yaml");
  const cases = parse(readFileSync(file, "utf8")) as readonly Case[];
  return cases.map((one) => ({
    ...one,
    object: { ...one.object, apiVersion: "lockstep.dev/v1alpha1" },
    ...(one.first === undefined ? {} : { first: { ...one.first, apiVersion: "lockstep.dev/v1alpha1" } }),
  }));
}

/** What is asked of an apiserver. Each rejects with an Error whose message is the apiserver's. */
export interface CaseApiserver {
  /** Creates the object, with strict field validation. */
  create(object: CaseObject): Promise<unknown>;
  /** Puts the object in the place of the one of its name, with strict field validation. */
  replace(object: CaseObject): Promise<unknown>;
  remove(object: CaseObject): Promise<void>;
}

/** Tries one case and takes away what it made. @returns what was wrong; undefined: nothing */
export async function tryCase(one: Case, apiserver: CaseApiserver): Promise<string | undefined> {
  if (one.first !== undefined) {
    const verdict = await attempt(() => apiserver.create(one.first ?? one.object));
    if (verdict.message !== undefined) return `the first object was refused: ${verdict.message}`;
  }
  const verdict = await attempt(() =>
    one.first === undefined ? apiserver.create(one.object) : apiserver.replace(one.object),
  );
  if (one.first !== undefined || verdict.message === undefined) await apiserver.remove(one.object);
  return judge(one, verdict);
}

interface Verdict {
  readonly message: string | undefined;
  readonly stored: unknown;
}

async function attempt(act: () => Promise<unknown>): Promise<Verdict> {
  try {
    return { message: undefined, stored: await act() };
  } catch (error) {
    return { message: error instanceof Error ? error.message : String(error), stored: undefined };
  }
}

function judge(one: Case, { message, stored }: Verdict): string | undefined {
  if (one.refused !== undefined) {
    if (message === undefined) return "it was accepted";
    return message.includes(one.refused) ? undefined : `it was refused for another reason: ${message}`;
  }
  if (message !== undefined) return `it was refused: ${message}`;
  for (const [path, wanted] of Object.entries(one.holds ?? {})) {
    const found = path
      .split(".")
      .reduce<unknown>((at, key) => (at as Readonly<Record<string, unknown>> | undefined)?.[key], stored);
    if (found !== wanted) return `${path} is ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`;
  }
  return undefined;
}
