// What a person gets wrong is refused in words, or told by a condition within half a minute.
import assert from "node:assert/strict";
import { readCases, tryCase } from "../../../crds/src/cases.ts";
import type { CaseApiserver, CaseObject } from "../../../crds/src/cases.ts";
import { Cell, installOperator } from "../lockstep.ts";
import type { CellWish } from "../lockstep.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import { scaleOperator, secondsSince, untilTold } from "./steps.ts";

/** kubectl prints what the apiserver said; fields are checked by the apiserver, strictly. */
function caseApiserver({ cluster, namespace, signal }: ScenarioContext): CaseApiserver {
  const send = async (verb: "create" | "replace", object: CaseObject): Promise<unknown> => {
    const { code, stdout, stderr } = await cluster.client(
      "kubectl",
      [verb, "--filename=-", "--validate=strict", "--output=json", `--namespace=${namespace}`],
      { input: JSON.stringify(object), allowedCodes: [0, 1], signal },
    );
    if (code !== 0) throw new Error(stderr);
    return JSON.parse(stdout) as unknown;
  };
  return {
    create: (object) => send("create", object),
    replace: (object) => send("replace", object),
    remove: async (object) => {
      await cluster.kubectl(
        ["delete", "--filename=-", `--namespace=${namespace}`, "--ignore-not-found", "--timeout=30s"],
        { input: JSON.stringify(object), signal },
      );
    },
  };
}

async function everyRuleSpeaks(context: ScenarioContext): Promise<void> {
  const started = performance.now();
  // Nobody is to make cells of what is accepted here.
  await scaleOperator(context, 0);
  const apiserver = caseApiserver(context);
  const wrong: string[] = [];
  const cases = readCases();
  for (const one of cases) {
    const verdict = await tryCase(one, apiserver);
    if (verdict !== undefined) wrong.push(`${one.case}: ${verdict}`);
  }
  await scaleOperator(context, 2);
  assert.deepEqual(wrong, []);
  const refused = cases.filter(({ refused: fragment }) => fragment !== undefined).length;
  context.say(
    `${String(cases.length)} cases (${String(refused)} refusals) tried on the apiserver in ${secondsSince(started)}`,
  );
}

/** What is wrong with a cell, and what must be said: the thing, and the next step. */
const MISTAKES: readonly {
  readonly name: string;
  readonly spec: Readonly<Record<string, unknown>>;
  readonly names: RegExp;
  readonly advises: RegExp;
}[] = [
  {
    name: "too-large",
    spec: { resources: { requests: { cpu: "900", memory: "128Mi" } } },
    names: /Insufficient cpu/,
    advises: /spec\.resources/,
  },
  {
    name: "no-such-zone",
    spec: { topology: { zones: ["zone-9"] } },
    names: /zone-9/,
    advises: /Add or uncordon a node/,
  },
  {
    name: "no-such-image",
    spec: { image: "lockstep-cell:does-not-exist" },
    names: /lockstep-cell:does-not-exist/,
    advises: /spec\.image/,
  },
  {
    name: "no-such-class",
    spec: { storage: { size: "600Mi", storageClassName: "no-such-class" } },
    names: /StorageClass no-such-class/,
    advises: /Create it/,
  },
  {
    name: "no-such-secret",
    spec: { tls: { mode: "Secret", operatorSecretName: "no-such-secret" } },
    names: /no-such-secret/,
    advises: /must hold tls\.crt, tls\.key and ca\.crt/,
  },
];

async function mistakesAreTold(context: ScenarioContext): Promise<void> {
  for (const { name, spec, names, advises } of MISTAKES) {
    const cell = new Cell(context, name);
    const wish: CellWish = { voters: 1, spec };
    await cell.apply(wish);
    const { message, type } = await untilTold(context, cell, names);
    assert.match(message, advises, `${type} says what to do`);
    await context.kubectl(["delete", "coordinationcell", name, "--timeout=60s"]);
  }
}

export const badInput: Scenario = {
  name: "bad-input",
  about: "every rule of the schemas on the real apiserver, and mistakes that only a condition can tell",
  ci: false,
  minutes: 12,
  run: async (context) => {
    await installOperator(context);
    await everyRuleSpeaks(context);
    await mistakesAreTold(context);
  },
};
