import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Terminal } from "../terminal.ts";
import type { Kubectl } from "./kubectl.ts";
import { CELLS, MEMBERS, OPERATIONS } from "./shapes.ts";

export interface ReportOptions {
  readonly kubectl: Kubectl;
  readonly terminal: Terminal;
  readonly namespace: readonly string[];
  readonly folder: string;
}

const LOG_LINES = "5000";

/**
 * Writes what a person who helps needs to see into a folder. Secrets are never asked for; values of environment
 * variables are taken out, because people put passwords there.
 * @returns the files written.
 */
export async function writeReport(options: ReportOptions, cell: string): Promise<readonly string[]> {
  const { kubectl, namespace, folder } = options;
  await kubectl.run(["get", CELLS, cell, ...namespace, "-o", "name"]);
  await mkdir(folder, { recursive: true });
  const written: string[] = [];
  const save = async (
    name: string,
    args: readonly string[],
    clean: (text: string) => string,
  ): Promise<void> => {
    let text: string;
    try {
      text = clean(await kubectl.run(args));
    } catch (error) {
      // A report of what could not be seen is a finding too.
      text = `could not be read: ${error instanceof Error ? error.message : String(error)}\n`;
    }
    await writeFile(join(folder, name), text, { mode: 0o600 });
    written.push(name);
  };
  const ofCell = ["-l", `lockstep.dev/cell=${cell}`];
  const json = ["-o", "json"];
  await save("cell.json", ["get", CELLS, cell, ...namespace, ...json], withoutValues);
  await save("members.json", ["get", MEMBERS, ...namespace, ...ofCell, ...json], withoutValues);
  await save("operations.json", ["get", OPERATIONS, ...namespace, ...json], withoutValues);
  await save("namespaces.json", ["get", "cellnamespaces.lockstep.dev", "-A", ...json], withoutValues);
  await save("pods.json", ["get", "pods", ...namespace, ...ofCell, ...json], withoutValues);
  await save(
    "objects.json",
    ["get", "pvc,services,poddisruptionbudgets,networkpolicies", ...namespace, ...ofCell, ...json],
    withoutValues,
  );
  await save("nodes.json", ["get", "nodes", ...json], withoutValues);
  await save("events.txt", ["get", "events", ...namespace, "--sort-by=.metadata.creationTimestamp"], same);
  const listed = await kubectl.run(["get", "pods", ...namespace, ...ofCell, "-o", "name"]);
  for (const pod of listed.split("\n").filter((line) => line !== "")) {
    const name = pod.replace(/^pod\//, "");
    await save(`${name}.log`, ["logs", name, ...namespace, `--tail=${LOG_LINES}`], same);
    await save(
      `${name}.previous.log`,
      ["logs", name, ...namespace, "--previous", `--tail=${LOG_LINES}`],
      same,
    );
  }
  return written;
}

function same(text: string): string {
  return text;
}

const REMOVED = "(removed)";

/** Takes out the values of environment variables and what `kubectl apply` keeps of earlier manifests. */
export function withoutValues(text: string): string {
  const clean = (key: string, value: unknown): unknown => {
    if (key === "env" && Array.isArray(value)) {
      return value.map((entry: unknown) =>
        typeof entry === "object" && entry !== null && "value" in entry
          ? { ...entry, value: REMOVED }
          : entry,
      );
    }
    if (key === "kubectl.kubernetes.io/last-applied-configuration") return REMOVED;
    return value;
  };
  return `${JSON.stringify(JSON.parse(text), clean, 2)}\n`;
}
