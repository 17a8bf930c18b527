// docs/api-reference.md, made from the schemas.
import { schemaOf } from "./definitions.ts";
import type { Definition, Schema } from "./definitions.ts";
import { isScalar } from "./types.ts";

const HEAD = `<!-- Generated from crds/*.yaml by \`npm run gen\`: do not edit. -->

# API reference

Resources of \`lockstep.dev/v1alpha1\`. A field without a default may be left out unless it is required; its text says
what absence means. The apiserver enforces every rule below; there are no webhooks.
`;

/** @returns the text of docs/api-reference.md */
export function generateReference(definitions: readonly Definition[]): string {
  const index = definitions.map(({ spec: { names } }) => `- [${names.kind}](#${names.kind.toLowerCase()})`);
  return [HEAD, ...index, "", ...definitions.flatMap(chapterOf)].join("\n");
}

function chapterOf(definition: Definition): string[] {
  const { group, names, versions } = definition.spec;
  const schema = schemaOf(definition);
  const kubectl = [names.plural, names.singular, ...(names.shortNames ?? [])].map((name) => `\`${name}\``);
  const lines = [
    `## ${names.kind}`,
    "",
    paragraph(schema.description),
    "",
    `For kubectl: ${kubectl.join(", ")} (in full \`${names.plural}.${group}\`).`,
  ];
  const scale = versions[0]?.subresources?.["scale"]?.["specReplicasPath"];
  if (scale !== undefined) lines.push(`The scale subresource sets \`${scale.slice(1)}\`.`);
  const rules = rulesOf(schema, "");
  if (rules.length > 0) lines.push("", ...rules.map((rule) => `- ${rule}`));
  lines.push("", ...tables(schema, names.kind));
  return lines;
}

/** A table for each part of the object, so that no row is deeper than its table. */
function tables(schema: Schema, kind: string): string[] {
  const lines: string[] = [];
  for (const part of ["spec", "status"]) {
    const root = schema.properties?.[part];
    if (root !== undefined) lines.push(...tableOf(root, part, kind));
  }
  return lines;
}

function tableOf(schema: Schema, path: string, kind: string): string[] {
  const lines = [`### ${kind}: ${path}`, "", paragraph(schema.description), ""];
  const rules = rulesOf(schema, path);
  if (rules.length > 0) lines.push(...rules.map((rule) => `- ${rule}`), "");
  lines.push("| field | type | default | meaning |", "|---|---|---|---|");
  const inner: string[] = [];
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    const required = schema.required?.includes(name) === true;
    lines.push(
      `| \`${name}\` | ${cell(typeOf(property))} | ${defaultOf(property, required)} | ${meaningOf(property)} |`,
    );
    const deeper = property.items ?? property;
    if (deeper.properties !== undefined) {
      inner.push(...tableOf(deeper, `${path}.${name}${property.items === undefined ? "" : "[]"}`, kind));
    }
  }
  return [...lines, "", ...inner];
}

function typeOf(schema: Schema): string {
  if (schema["x-kubernetes-int-or-string"] === true) return "quantity";
  if (schema.items !== undefined) {
    const unique = schema["x-kubernetes-list-type"] === "set" ? ", each once" : "";
    return `list of ${typeOf(schema.items)}${unique}`;
  }
  if (schema.additionalProperties !== undefined) return `map to ${typeOf(schema.additionalProperties)}`;
  if (schema.enum !== undefined) return schema.enum.map((value) => `\`${String(value)}\``).join(", ");
  if (schema.format === "date-time") return "time";
  return schema.type ?? "";
}

function defaultOf(schema: Schema, required: boolean): string {
  if (isScalar(schema.default)) return `\`${String(schema.default)}\``;
  return required ? "required" : "";
}

function meaningOf(schema: Schema): string {
  const own = rulesOf(schema, "");
  const rules = schema.properties === undefined && own.length > 0 ? ` Rule: ${own.join("; ")}.` : "";
  return cell(`${paragraph(schema.description)}${rules}`);
}

function rulesOf(schema: Schema, path: string): string[] {
  return (schema["x-kubernetes-validations"] ?? []).map(({ message, rule, fieldPath }) => {
    const at = fieldPath === undefined ? path : `${path}${fieldPath}`.replace(/^\./, "");
    const text = message ?? rule;
    return path === "" && fieldPath === undefined ? text : `\`${at}\`: ${text}`;
  });
}

function paragraph(text: string | undefined): string {
  return (text ?? "").replace(/\s+/g, " ").trim();
}

function cell(text: string): string {
  return text.replaceAll("|", "\\|");
}
