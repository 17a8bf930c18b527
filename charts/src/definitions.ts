import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

export interface Template {
  readonly file: string;
  readonly text: string;
}

/**
 * The CustomResourceDefinitions of a folder as templates of the chart: part of the release, so that an upgrade upgrades
 * them, and kept when it is uninstalled, because deleting a definition deletes every object of its kind.
 */
export function chartDefinitions(folder: string): readonly Template[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith(".yaml"))
    .sort()
    .map((file) => ({ file, text: asTemplate(file, readFileSync(join(folder, file), "utf8")) }));
}

/** Throws an Error when the text is no single definition that begins as they all do. */
export function asTemplate(file: string, definition: string): string {
  const start =
    /^apiVersion: apiextensions\.k8s\.io\/v1\nkind: CustomResourceDefinition\nmetadata:\n {2}name: (\S+)\n/m;
  const match = start.exec(definition);
  if (match === null || /^---$/m.test(definition)) throw new Error(`crds/${file} is not one definition`);
  // A comment before the definition speaks to whoever edits the source.
  const body = definition.slice(match.index + match[0].length);
  if (/^\S/.exec(body) === null || body.includes("{{") || body.includes("}}")) {
    throw new Error(`crds/${file} has metadata besides the name, or text that a template would read`);
  }
  return [
    `{{- /* Generated from crds/${file} by charts/src/main.ts; edit that one. */ -}}`,
    "{{- if .Values.crds.install }}",
    "apiVersion: apiextensions.k8s.io/v1",
    "kind: CustomResourceDefinition",
    "metadata:",
    `  name: ${match[1] ?? ""}`,
    "  annotations:",
    "    helm.sh/resource-policy: keep",
    "  labels:",
    '    {{- include "lockstep.labels" . | nindent 4 }}',
    body.trimEnd(),
    "{{- end }}",
    "",
  ].join("\n");
}
