import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { asTemplate, chartDefinitions } from "./definitions.ts";

const root = join(import.meta.dirname, "../..");
const chart = join(root, "charts/lockstep");

describe("definitions in the chart", () => {
  const definition = (rest: string): string =>
    `# For whoever edits it.\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: xs.lockstep.dev\n${rest}`;

  it("are generated from crds/, and fresh", () => {
    const wanted = chartDefinitions(join(root, "crds"));
    assert.ok(wanted.length >= 4);
    assert.deepEqual(
      readdirSync(join(chart, "templates/crds")).sort(),
      wanted.map(({ file }) => file),
    );
    for (const { file, text } of wanted) {
      const committed = readFileSync(join(chart, "templates/crds", file), "utf8");
      assert.equal(committed, text, `${file}: run \`node charts/src/main.ts\``);
    }
  });

  it("are kept when the release is uninstalled, and can be left out", () => {
    const text = asTemplate("x.yaml", definition("spec:\n  group: lockstep.dev\n"));
    assert.match(text, /^\{\{- if \.Values\.crds\.install \}\}\napiVersion/m);
    assert.match(text, /annotations:\n {4}helm\.sh\/resource-policy: keep\n/);
    assert.match(text, /spec:\n {2}group: lockstep\.dev\n\{\{- end \}\}\n$/);
  });

  it("that a template would read as its own, or that are several, are refused", () => {
    assert.throws(() => asTemplate("x.yaml", definition("spec:\n  a: '{{ x }}'\n")), /crds\/x\.yaml/);
    assert.throws(() => asTemplate("x.yaml", definition("spec: {}\n---\nkind: X\n")), /crds\/x\.yaml/);
    assert.throws(() => asTemplate("x.yaml", definition("  labels: {}\nspec: {}\n")), /crds\/x\.yaml/);
    assert.throws(() => asTemplate("x.yaml", "kind: Other\n"), /crds\/x\.yaml/);
  });
});

interface Schema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean | Schema;
}

describe("the schema of the values", () => {
  const schema = JSON.parse(readFileSync(join(chart, "values.schema.json"), "utf8")) as Schema;
  const values = parse(readFileSync(join(chart, "values.yaml"), "utf8")) as Record<string, unknown>;

  it("knows every value, has no other, and refuses what it does not know", () => {
    const differences: string[] = [];
    const compare = (path: string, part: Schema, value: Readonly<Record<string, unknown>>): void => {
      if (part.additionalProperties !== false) differences.push(`${path} admits anything`);
      const known = part.properties ?? {};
      for (const name of new Set([...Object.keys(known), ...Object.keys(value)])) {
        const inner = known[name];
        const at = `${path}.${name}`;
        if (at === "values.global") continue;
        if (inner === undefined) differences.push(`${at} is not in the schema`);
        else if (!(name in value)) differences.push(`${at} is not in values.yaml`);
        else if (inner.properties !== undefined && Object.keys(value[name] as object).length > 0) {
          // What is empty by default has the shape that Kubernetes gives it; only its own fields are settled here.
          if (name !== "resources") compare(at, inner, value[name] as Readonly<Record<string, unknown>>);
        }
      }
    };
    compare("values", schema, values);
    assert.deepEqual(differences, []);
  });
});
