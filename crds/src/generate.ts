// What is made from the definitions, by path in the repository.
import { readDefinitions } from "./definitions.ts";
import { generateReference } from "./reference.ts";
import { generateTypes } from "./types.ts";

/** @returns each generated file's path, from the repository's root, and its text */
export async function generateFiles(): Promise<ReadonlyMap<string, string>> {
  const definitions = readDefinitions();
  return new Map([
    ["operator/src/api/generated/resources.ts", await generateTypes(definitions)],
    ["docs/api-reference.md", generateReference(definitions)],
  ]);
}
