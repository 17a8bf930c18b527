// TypeScript types of our resources, made from the schemas.
import { compile } from "json-schema-to-typescript";
import type { JSONSchema } from "json-schema-to-typescript";
import { format } from "prettier";
import ts from "typescript";
import { schemaOf } from "./definitions.ts";
import type { Definition, Schema } from "./definitions.ts";

const BANNER =
  "// Generated from crds/*.yaml by `npm run gen`: do not edit. Fields with a default are always there, because the\n" +
  "// apiserver fills them in; those that may be left out say what absence means.";

/** Names of the parts that have one, by kind and path; what has none stands where it is used. */
const NAMES: Readonly<Record<string, string>> = {
  "CoordinationCell spec": "CoordinationCellSpec",
  "CoordinationCell spec.storage": "StorageSpec",
  "CoordinationCell spec.topology": "TopologySpec",
  "CoordinationCell spec.resources": "ResourceRequirements",
  "CoordinationCell spec.podTemplate": "PodTemplate",
  "CoordinationCell spec.podTemplate.spec": "PodOverlay",
  "CoordinationCell spec.podTemplate.spec.tolerations[]": "Toleration",
  "CoordinationCell spec.tls": "TlsSpec",
  "CoordinationCell spec.tls.issuerRef": "IssuerReference",
  "CoordinationCell spec.updatePolicy": "UpdatePolicy",
  "CoordinationCell spec.replacementPolicy": "ReplacementPolicy",
  "CoordinationCell spec.settings": "CellSettings",
  "CoordinationCell spec.allowedNamespaces": "AllowedNamespaces",
  "CoordinationCell spec.recovery": "RecoverySpec",
  "CoordinationCell status": "CoordinationCellStatus",
  "CoordinationCell status.conditions[]": "Condition",
  "CoordinationCell status.members[]": "MemberSummary",
  "CoordinationCell status.operation": "OperationStatus",
  "CoordinationCell status.lastOperation": "FinishedOperation",
  "CellMember spec": "CellMemberSpec",
  "CellMember spec.storage": "MemberStorage",
  "CellMember status": "CellMemberStatus",
  "CellMember status.conditions[]": "Condition",
  "CellOperation spec": "CellOperationSpec",
  "CellOperation status": "CellOperationObjectStatus",
  "CellOperation status.conditions[]": "Condition",
  "Namespace spec": "CellNamespaceSpec",
  "Namespace spec.cellRef": "CellReference",
  "Namespace status": "CellNamespaceStatus",
  "Namespace status.conditions[]": "Condition",
};

/** @returns the text of operator/src/api/generated/resources.ts */
export async function generateTypes(definitions: readonly Definition[]): Promise<string> {
  const named = new Map<string, JSONSchema>();
  for (const definition of definitions) {
    const { spec, status } = schemaOf(definition).properties ?? {};
    if (spec === undefined || status === undefined) {
      throw new TypeError(`${definition.metadata.name} needs spec and status`);
    }
    const kind = definition.spec.names.kind;
    convert(spec, `${kind} spec`, named);
    convert(status, `${kind} status`, named);
  }
  const root: JSONSchema = {
    title: "GeneratedRoot",
    type: "object",
    additionalProperties: false,
    definitions: Object.fromEntries(named),
    properties: Object.fromEntries([...named.keys()].map((name) => [name, reference(name)])),
  };
  const text = await compile(root, "GeneratedRoot", { bannerComment: BANNER, format: false });
  return format(readonly(oneLineComments(text)), {
    parser: "typescript",
    printWidth: 110,
    trailingComma: "all",
  });
}

function reference(name: string): JSONSchema {
  return { $ref: `#/definitions/${name}` };
}

/** Gives what a schema is in its place: itself, or a reference when it has a name. */
function convert(schema: Schema, place: string, named: Map<string, JSONSchema>): JSONSchema {
  const converted: JSONSchema = {
    ...(schema.description === undefined ? {} : { description: describe(schema) }),
    ...shapeOf(schema, place, named),
  };
  const name = NAMES[place];
  if (name === undefined) return converted;
  const known = named.get(name);
  if (known !== undefined && JSON.stringify(known) !== JSON.stringify(converted)) {
    throw new TypeError(`${name} is one thing, but ${place} differs from where it stood before`);
  }
  named.set(name, converted);
  return reference(name);
}

function shapeOf(schema: Schema, place: string, named: Map<string, JSONSchema>): JSONSchema {
  if (schema["x-kubernetes-int-or-string"] === true) return { tsType: "number | string" };
  const values = schema.enum ?? valuesOfRule(schema);
  if (values !== undefined) return { tsType: values.map((value) => JSON.stringify(value)).join(" | ") };
  if (schema.items !== undefined) {
    return { type: "array", items: convert(schema.items, `${place}[]`, named) };
  }
  if (schema.additionalProperties !== undefined) {
    return {
      type: "object",
      additionalProperties: convert(schema.additionalProperties, `${place}.*`, named),
    };
  }
  if (schema.properties === undefined) return { type: schema.type as "string" };
  return {
    type: "object",
    additionalProperties: false,
    required: Object.entries(schema.properties)
      .filter(([name, property]) => isAlwaysThere(name, property, schema))
      .map(([name]) => name),
    properties: Object.fromEntries(
      Object.entries(schema.properties).map(([name, property]) => [
        name,
        convert(property, `${place}.${name}`, named),
      ]),
    ),
  };
}

/** What a number may be when a rule says so, which can tell why: `self in [1, 3, 5]`. */
function valuesOfRule(schema: Schema): readonly number[] | undefined {
  for (const { rule } of schema["x-kubernetes-validations"] ?? []) {
    const values = /^self in (\[[0-9, ]+\])$/.exec(rule)?.[1];
    if (values !== undefined) return JSON.parse(values) as number[];
  }
  return undefined;
}

/**
 * Required fields, and those that the apiserver fills in. Not `false` and not the only value there is: absence means
 * the same to a program, and one that makes such an object need not say it.
 */
function isAlwaysThere(name: string, property: Schema, parent: Schema): boolean {
  if (parent.required?.includes(name) === true) return true;
  return property.default !== undefined && property.default !== false && property.enum?.length !== 1;
}

function describe(schema: Schema): string {
  const text = (schema.description ?? "").trim();
  return isScalar(schema.default) ? `${text} Default: ${String(schema.default)}.` : text;
}

/** Whether a default is a value for people to read; an object is there only to carry those of its fields. */
export function isScalar(value: unknown): value is string | number | boolean {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean";
}

function oneLineComments(text: string): string {
  return text.replace(/\/\*\*\n *\* (.*)\n *\*\//g, "/** $1 */");
}

/** Everything that is read is frozen. The root type, which only holds the others together, goes. */
function readonly(text: string): string {
  const source = ts.createSourceFile("generated.ts", text, ts.ScriptTarget.ES2024, true);
  const edits: { readonly at: number; readonly end: number; readonly text: string }[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isInterfaceDeclaration(node) && node.name.text === "GeneratedRoot") {
      edits.push({ at: node.getFullStart(), end: node.getEnd(), text: "" });
      return;
    }
    if (ts.isPropertySignature(node) || ts.isIndexSignatureDeclaration(node) || ts.isArrayTypeNode(node)) {
      edits.push({ at: node.getStart(), end: node.getStart(), text: "readonly " });
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  let edited = text;
  for (const edit of edits.sort((a, b) => b.at - a.at)) {
    edited = edited.slice(0, edit.at) + edit.text + edited.slice(edit.end);
  }
  return `${BANNER}\n\n${edited.replace(BANNER, "").trimStart()}`;
}
