// What an apiserver would hold against an object by its schema alone: for fakes of it that are to be as strict.
import type { Schema } from "./definitions.ts";

/**
 * @returns what is wrong, by path; empty: nothing. Rules in the Common Expression Language are not evaluated, defaults
 * not filled in.
 */
export function violationsOf(schema: Schema, value: unknown, path: string): readonly string[] {
  if (value === undefined || value === null) return [`${path}: null`];
  if (schema["x-kubernetes-int-or-string"] === true) {
    return typeof value === "number" || typeof value === "string" ? [] : [`${path}: not a number or text`];
  }
  if (schema.enum !== undefined && !schema.enum.includes(value)) {
    return [`${path}: ${JSON.stringify(value)} is not one of ${schema.enum.map(String).join(", ")}`];
  }
  switch (schema.type) {
    case "object":
      return isObject(value) ? ofObject(schema, value, path) : [`${path}: not an object`];
    case "array":
      return Array.isArray(value) ? ofArray(schema, value, path) : [`${path}: not a list`];
    case "string":
      return typeof value === "string" ? ofText(schema, value, path) : [`${path}: not a text`];
    case "integer":
      return Number.isSafeInteger(value)
        ? ofNumber(schema, Number(value), path)
        : [`${path}: not an integer`];
    case "boolean":
      return typeof value === "boolean" ? [] : [`${path}: not true or false`];
    default:
      return [];
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function ofObject(schema: Schema, value: Readonly<Record<string, unknown>>, path: string): readonly string[] {
  const { properties, additionalProperties } = schema;
  // What is undefined is not written.
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined);
  const missing = (schema.required ?? []).filter((name) => value[name] === undefined);
  return [
    ...missing.map((name) => `${path}.${name}: required`),
    ...bounds(entries.length, [schema.minProperties, schema.maxProperties], path),
    ...entries.flatMap(([name, inner]) => {
      const property = properties?.[name] ?? additionalProperties;
      if (property !== undefined) return violationsOf(property, inner, `${path}.${name}`);
      return properties === undefined ? [] : [`${path}.${name}: unknown field`];
    }),
  ];
}

function ofArray(schema: Schema, value: readonly unknown[], path: string): readonly string[] {
  const { items } = schema;
  const keys = schema["x-kubernetes-list-map-keys"];
  const identities =
    schema["x-kubernetes-list-type"] === "set"
      ? value.map((item) => JSON.stringify(item))
      : keys === undefined
        ? []
        : value.map((item) => JSON.stringify(keys.map((key) => (isObject(item) ? item[key] : undefined))));
  const repeated = identities.filter((identity, index) => identities.indexOf(identity) !== index);
  return [
    ...bounds(value.length, [schema.minItems, schema.maxItems], path),
    ...repeated.map((identity) => `${path}: ${identity} twice`),
    ...(items === undefined
      ? []
      : value.flatMap((item, index) => violationsOf(items, item, `${path}[${String(index)}]`))),
  ];
}

function ofText(schema: Schema, value: string, path: string): readonly string[] {
  // Lengths are counted in code points, as the apiserver does.
  const problems = [...bounds(Array.from(value).length, [schema.minLength, schema.maxLength], path)];
  if (schema.pattern !== undefined && !new RegExp(schema.pattern).test(value)) {
    problems.push(`${path}: ${JSON.stringify(value.slice(0, 100))} does not match ${schema.pattern}`);
  }
  if (schema.format === "date-time" && Number.isNaN(Date.parse(value))) problems.push(`${path}: not a time`);
  return problems;
}

function ofNumber(schema: Schema, value: number, path: string): readonly string[] {
  return bounds(value, [schema.minimum, schema.maximum], path);
}

function bounds(
  value: number,
  [min, max]: readonly [number | undefined, number | undefined],
  path: string,
): readonly string[] {
  if (min !== undefined && value < min) return [`${path}: ${String(value)} is less than ${String(min)}`];
  if (max !== undefined && value > max) return [`${path}: ${String(value)} is more than ${String(max)}`];
  return [];
}
