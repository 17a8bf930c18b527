import { spawnSync } from "node:child_process";

export interface Rendering {
  readonly release: string;
  readonly namespace: string;
  /** `--set` pairs, e.g. `replicas=1`. */
  readonly set?: readonly string[];
}

/** `helm template` of a chart with its definitions. Throws an Error with what helm says when it refuses. */
export function helmTemplate(helm: string, chart: string, rendering: Rendering): string {
  const set = (rendering.set ?? []).flatMap((pair) => ["--set", pair]);
  const args = ["template", rendering.release, chart, "--namespace", rendering.namespace, ...set];
  const result = spawnSync(helm, args, { encoding: "utf8", maxBuffer: 64 * 1024 * 1024 });
  if (result.error !== undefined) throw new Error(`cannot run ${helm}: ${result.error.message}`);
  if (result.status !== 0) throw new Error(result.stderr.trim());
  return result.stdout;
}
