// The README's part about Kubernetes, followed to the letter.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "../command.ts";
import { nameImages, OPERATOR_NAMESPACE } from "../lockstep.ts";
import type { Scenario } from "../scenario.ts";

const MARK = "<!-- e2e: these commands are run as they stand -->";
const COMMAND_MS = 240_000;

/** The commands of the first block after the mark, without the comments that tell what they print. */
export function readmeCommands(
  text: string,
): readonly { readonly command: string; readonly prints?: string }[] {
  const after = text.split(MARK)[1];
  const block = /```sh\n([\s\S]*?)```/.exec(after ?? "")?.[1];
  if (block === undefined) throw new TypeError(`the README has no block of commands after ${MARK}`);
  return block
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const [command = "", prints] = line.split(/\s+# /);
      return { command: command.trim(), ...(prints === undefined ? {} : { prints: prints.trim() }) };
    });
}

export const readme: Scenario = {
  name: "readme",
  about: "the README's commands as they stand: helm install, kubectl apply, a lock taken from a pod",
  ci: true,
  minutes: 8,
  run: async (context) => {
    const { cluster, signal, say } = context;
    const { repository } = cluster.layout;
    await nameImages(context);
    // A cluster that is used again has it already.
    await cluster.helm([
      "uninstall",
      "lockstep",
      "--namespace",
      OPERATOR_NAMESPACE,
      "--ignore-not-found",
      "--wait",
    ]);
    context.finally(async () => {
      // It stands in the namespace `default`, where whoever follows the README puts it.
      await cluster.kubectl([
        "delete",
        "-f",
        join(repository, "examples/kubernetes/application.yaml"),
        "--ignore-not-found",
      ]);
      await cluster.kubectl([
        "delete",
        "-f",
        join(repository, "examples/kubernetes/cell.yaml"),
        "--ignore-not-found",
        "--timeout=120s",
      ]);
      await cluster.kubectl([
        "delete",
        "persistentvolumeclaims",
        "--all",
        "--namespace",
        "default",
        "--timeout=60s",
      ]);
    });
    for (const { command, prints } of readmeCommands(readFileSync(join(repository, "README.md"), "utf8"))) {
      const started = performance.now();
      // A shell, as the reader has one; the text is the repository's own.
      const { stdout } = await run("bash", ["-c", command], {
        cwd: repository,
        env: cluster.clientEnvironment(),
        timeoutMs: COMMAND_MS,
        signal,
      });
      say(`${((performance.now() - started) / 1000).toFixed(1)} s  ${command}`);
      if (prints !== undefined) {
        // Tokens differ from run to run; everything else is what the README says.
        const shape = (text: string): string => text.replace(/\d+/g, "N");
        assert.equal(shape(stdout.trim()), shape(prints));
      }
    }
  },
};
