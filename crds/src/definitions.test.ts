import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readCases } from "./cases.ts";
import type { Case } from "./cases.ts";
import { generateFiles } from "./generate.ts";
import { readDefinitions, schemaOf, walk } from "./definitions.ts";
import type { Definition, Rule, Schema } from "./definitions.ts";
import { violationsOf } from "./violations.ts";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const definitions = readDefinitions();

function problemsOf(check: (schema: Schema, path: string) => string | undefined): string[] {
  const problems: string[] = [];
  for (const definition of definitions) {
    walk(schemaOf(definition), (path, schema) => {
      const problem = path.startsWith("metadata") ? undefined : check(schema, path);
      if (problem !== undefined) problems.push(`${definition.spec.names.kind} ${path}: ${problem}`);
    });
  }
  return problems;
}

function definitionOf(kind: string): Definition {
  return definitions.find((definition) => definition.spec.names.kind === kind)!;
}

describe("the CustomResourceDefinitions", () => {
  it("document every field", () => {
    const undocumented = problemsOf((schema, path) => {
      const isField = path.includes(".") && !path.endsWith("[]") && !path.endsWith(".*");
      return isField && (schema.description ?? "").length < 5 ? "no description" : undefined;
    });
    assert.deepEqual(undocumented, []);
  });

  it("say what absence means wherever a field of a spec may be left out and has no default", () => {
    const silent: string[] = [];
    for (const definition of definitions) {
      walk(schemaOf(definition), (path, schema) => {
        if (!path.startsWith("spec")) return;
        for (const [name, property] of Object.entries(schema.properties ?? {})) {
          const optional = schema.required?.includes(name) !== true && property.default === undefined;
          if (optional && !(property.description ?? "").includes("Absent")) silent.push(`${path}.${name}`);
        }
      });
    }
    assert.deepEqual(silent, []);
  });

  it("bound every text, list and map, so that the rules have a cost", () => {
    const unbounded = problemsOf((schema) => {
      const isText = schema.type === "string" && schema.enum === undefined && schema.format !== "date-time";
      if (isText && schema.maxLength === undefined) return "no maxLength";
      if (schema.items !== undefined && schema.maxItems === undefined) return "no maxItems";
      if (schema.additionalProperties !== undefined && schema.maxProperties === undefined) {
        return "no maxProperties";
      }
      return undefined;
    }).filter((problem) => !/ (apiVersion|kind): /.test(problem));
    assert.deepEqual(unbounded, []);
  });

  it("type every list, so that two appliers merge as meant", () => {
    const untyped = problemsOf((schema) => {
      if (schema.items === undefined) return undefined;
      const type = schema["x-kubernetes-list-type"];
      if (type === undefined) return "no list type";
      return type === "map" && schema["x-kubernetes-list-map-keys"] === undefined ? "no keys" : undefined;
    });
    assert.deepEqual(untyped, []);
  });

  it("keep no unknown field, and have no default but scalars and the objects that carry them", () => {
    const odd = problemsOf((schema) => {
      if (Object.keys(schema).some((key) => key.includes("preserve-unknown"))) return "keeps unknown fields";
      if (typeof schema.default !== "object" || schema.default === null) return undefined;
      for (const [name, value] of Object.entries(schema.default)) {
        // Of a status nobody has written; once somebody has, absence would be a fault to be seen.
        if (name === "observedGeneration" && value === -1) continue;
        if (schema.properties?.[name]?.default !== value) return `${name} has two defaults`;
      }
      return undefined;
    });
    assert.deepEqual(odd, []);
  });

  it("give every rule a message for people", () => {
    const mute = problemsOf((schema) =>
      (schema["x-kubernetes-validations"] ?? []).some(({ message }) => message === undefined)
        ? "a rule without a message"
        : undefined,
    );
    assert.deepEqual(mute, []);
  });

  it("write status through its own subresource, with one shape of conditions", () => {
    const shapes = new Set<string>();
    for (const definition of definitions) {
      const [version] = definition.spec.versions;
      assert.ok(version?.subresources?.["status"] !== undefined, definition.metadata.name);
      const conditions = schemaOf(definition).properties?.["status"]?.properties?.["conditions"];
      shapes.add(JSON.stringify(conditions?.items));
      assert.deepEqual(conditions?.["x-kubernetes-list-map-keys"], ["type"]);
    }
    assert.equal(shapes.size, 1);
  });

  it("never let `kubectl delete namespace` mean ours", () => {
    const { plural, singular, shortNames } = definitionOf("Namespace").spec.names;
    for (const name of [plural, singular, ...(shortNames ?? [])]) {
      assert.ok(!["namespace", "namespaces", "ns"].includes(name), name);
    }
    assert.equal(plural, "cellnamespaces");
  });

  it("let programs find all of ours, and columns read fields that exist", () => {
    for (const definition of definitions) {
      assert.deepEqual(definition.spec.names.categories, ["lockstep"]);
      const paths = new Set<string>();
      walk(schemaOf(definition), (path) => paths.add(path));
      for (const column of definition.spec.versions[0]?.additionalPrinterColumns ?? []) {
        const path = column.jsonPath.slice(1).replace(/\[\?\(@\.type=="Ready"\)\]/, "[]");
        if (path !== "metadata.creationTimestamp") assert.ok(paths.has(path), `${column.name}: ${path}`);
      }
    }
  });
});

describe("the cases for an apiserver", () => {
  const cases = readCases();

  it("try every rule with an object that breaks it", () => {
    const refused = cases.flatMap((one) => (one.refused === undefined ? [] : [one]));
    const untried: string[] = [];
    for (const definition of definitions) {
      const { kind } = definition.spec.names;
      const messages = refused.filter((one) => one.object.kind === kind).map((one) => one.refused ?? "");
      const visit = ({ message = "" }: Rule): void => {
        if (!messages.some((fragment) => message.includes(fragment))) untried.push(`${kind}: ${message}`);
      };
      walk(schemaOf(definition), (_path, schema) => schema["x-kubernetes-validations"]?.forEach(visit));
    }
    assert.deepEqual(untried, []);
  });

  it("have a good object of every kind", () => {
    for (const definition of definitions) {
      const { kind } = definition.spec.names;
      assert.ok(
        cases.some((one) => one.refused === undefined && one.object.kind === kind),
        kind,
      );
    }
  });

  const violations = ({ object }: Case): readonly string[] =>
    violationsOf(schemaOf(definitionOf(object.kind)).properties!["spec"]!, object.spec, "spec");

  it("fit the schema when they are good, or when a rule refuses them", () => {
    const byRule = new Set<string>();
    for (const definition of definitions) {
      walk(schemaOf(definition), (_path, schema) => {
        for (const { message = "" } of schema["x-kubernetes-validations"] ?? []) byRule.add(message);
      });
    }
    for (const one of cases) {
      const { refused } = one;
      const isRule = refused !== undefined && [...byRule].some((message) => message.includes(refused));
      if (refused === undefined || isRule) assert.deepEqual(violations(one), [], one.case);
      else assert.notDeepEqual(violations(one), [], one.case);
    }
  });

  it("are refused by the schema for what it says", () => {
    const of = (name: string): readonly string[] => violations(cases.find((one) => one.case === name)!);
    assert.deepEqual(of("a field that does not exist"), ["spec.voter: unknown field"]);
    assert.deepEqual(of("no storage"), ["spec.storage: required"]);
    assert.deepEqual(of("one zone twice"), ['spec.topology.zones: "a" twice']);
    assert.deepEqual(of("an environment variable twice"), ['spec.podTemplate.spec.env: ["A"] twice']);
    assert.match(of("a duration in words").join(), /does not match/);
    assert.match(of("an action that does not exist").join(), /"Explode" is not one of Replace/);
  });
});

describe("what is generated from the definitions", () => {
  it("is what is committed", async () => {
    for (const [path, text] of await generateFiles()) {
      const committed = readFileSync(join(import.meta.dirname, "../..", path), "utf8");
      assert.ok(committed === text, `${path} is out of date: run npm run gen and commit the result`);
    }
  });
});
