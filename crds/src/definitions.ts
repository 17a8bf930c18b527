// The CustomResourceDefinitions as data: the one source of types, of the reference and of what tests try.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";

const folder = join(import.meta.dirname, "..");

/** A structural schema, as far as it is used here. */
export interface Schema {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
  readonly format?: string;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema;
  readonly items?: Schema;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minProperties?: number;
  readonly maxProperties?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
  readonly "x-kubernetes-list-type"?: "map" | "set" | "atomic";
  readonly "x-kubernetes-list-map-keys"?: readonly string[];
  readonly "x-kubernetes-int-or-string"?: boolean;
  readonly "x-kubernetes-validations"?: readonly Rule[];
}

/** A rule in the Common Expression Language. */
export interface Rule {
  readonly rule: string;
  readonly message?: string;
  readonly fieldPath?: string;
}

export interface PrinterColumn {
  readonly name: string;
  readonly type: string;
  readonly jsonPath: string;
  readonly priority?: number;
}

export interface Definition {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly group: string;
    readonly scope: string;
    readonly names: {
      readonly kind: string;
      readonly listKind: string;
      readonly plural: string;
      readonly singular: string;
      readonly shortNames?: readonly string[];
      readonly categories?: readonly string[];
    };
    readonly versions: readonly {
      readonly name: string;
      readonly served: boolean;
      readonly storage: boolean;
      readonly subresources?: Readonly<Record<string, Readonly<Record<string, string>>>>;
      readonly additionalPrinterColumns?: readonly PrinterColumn[];
      readonly selectableFields?: readonly { readonly jsonPath: string }[];
      readonly schema: { readonly openAPIV3Schema: Schema };
    }[];
  };
}

/** Files of the definitions, those for people first. */
export const DEFINITION_FILES: readonly string[] = [
  "coordinationcells.yaml",
  "cellnamespaces.yaml",
  "celloperations.yaml",
  "cellmembers.yaml",
];

export function readDefinitions(): readonly Definition[] {
  return DEFINITION_FILES.map((file) => parse(readFileSync(join(folder, file), "utf8")) as Definition);
}

/** The schema of the one version that there is. */
export function schemaOf(definition: Definition): Schema {
  const [version, ...others] = definition.spec.versions;
  if (version === undefined || others.length > 0) {
    throw new TypeError(`${definition.metadata.name} must have exactly one version`);
  }
  return version.schema.openAPIV3Schema;
}

/** Visits a schema and all that it holds; `path` is `spec.topology.zones[]`, for example. */
export function walk(schema: Schema, visit: (path: string, schema: Schema) => void, path = ""): void {
  visit(path, schema);
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    walk(property, visit, path === "" ? name : `${path}.${name}`);
  }
  if (schema.items !== undefined) walk(schema.items, visit, `${path}[]`);
  if (schema.additionalProperties !== undefined) walk(schema.additionalProperties, visit, `${path}.*`);
}
