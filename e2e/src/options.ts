// What the command line says.
import { parseArgs } from "node:util";

/** What is asked for. */
export type E2eCommand =
  | { readonly kind: "help" }
  | { readonly kind: "list"; readonly ci: boolean }
  | { readonly kind: "build"; readonly images: boolean }
  | { readonly kind: "up" }
  | { readonly kind: "down" }
  /** The loop that plays volume provisioner, as a process of its own: started by `up`, not by people. */
  | { readonly kind: "volumes" }
  | RunCommand;

export interface RunCommand {
  readonly kind: "run";
  /** Only scenarios of `--ci`. */
  readonly ci: boolean;
  /** Only these names, in this order's scenarios. Absent: all. */
  readonly only: readonly string[] | undefined;
  /** Leave the cluster running at the end; end at the first failure, and leave that as it is. */
  readonly keep: boolean;
  /** Use the cluster that is running, and leave it running. */
  readonly reuse: boolean;
}

export const HELP = `npm run e2e -- [COMMAND] [OPTIONS]

Starts a real Kubernetes on this machine (five nodes in three zones: containerd, kubelet and kube-proxy each in a
network namespace of its own; one apiserver, etcd, controller-manager, scheduler and cluster DNS) and runs scenarios on it.
It needs Linux, root and Go; Debian packages that are missing are installed with apt-get. The first build of Kubernetes
takes about ten minutes of two cores; after that a cluster is up in seconds.

Commands
  run      (default) build what is missing, start a cluster, run the scenarios, take the cluster down
  up       start a cluster and leave it running; prints how to use it
  down     take down whatever is running or was left by a killed run
  build    build what is missing, and start nothing; --images builds the project's images too

Options of run
  --only NAME[,NAME]   only these scenarios
  --ci                 only the scenarios for every submission (at most 20 minutes)
  --list               print the scenarios and end
  --keep               leave the cluster running at the end; after a failure nothing more is run or cleaned up
  --reuse              use the cluster that \`up\` or \`--keep\` left, and leave it running: for writing scenarios

Environment
  XDG_CACHE_HOME       builds are kept in its folder lockstep-e2e (default ~/.cache/lockstep-e2e, about 2 GB)
  LOCKSTEP_E2E_STATE   disks of the running cluster (default /var/lib/lockstep-e2e)
  LOCKSTEP_E2E_RUN     sockets and process ids of the running cluster (default /run/lockstep-e2e; keep it short)
  NODE_EXTRA_CA_CERTS  certificates that builds of images trust in addition

Examples
  npm run e2e                            everything
  npm run e2e -- --only ground           only the check of the cluster itself
  npm run e2e -- up                      then: export KUBECONFIG=/var/lib/lockstep-e2e/pki/admin.kubeconfig
  npm run e2e -- --reuse --only ground   a scenario on that cluster, again and again

The exit code is 0 when every scenario ran and passed, 1 when one failed, 2 for a wrong command line, 130 when interrupted.
`;

const COMMANDS = ["run", "up", "down", "build", "volumes"] as const;

const OPTIONS_OF_RUN = ["ci", "only", "keep", "reuse", "list"] as const;

/** Throws TypeError with a sentence when the command line makes no sense. */
export function parseCommand(argv: readonly string[]): E2eCommand {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    strict: true,
    options: {
      help: { type: "boolean", short: "h" },
      list: { type: "boolean" },
      ci: { type: "boolean" },
      only: { type: "string", multiple: true },
      keep: { type: "boolean" },
      reuse: { type: "boolean" },
      images: { type: "boolean" },
    },
  });
  if (values.help === true || positionals[0] === "help") return { kind: "help" };
  const [word = "run", ...rest] = positionals;
  const kind = COMMANDS.find((one) => one === word);
  if (kind === undefined) throw new TypeError(`There is no command "${word}".`);
  if (rest.length > 0) throw new TypeError(`One command at a time; what is "${rest.join(" ")}"?`);
  if (kind !== "run") {
    const wrong = OPTIONS_OF_RUN.find((name) => values[name] !== undefined);
    if (wrong !== undefined) throw new TypeError(`--${wrong} belongs to "run", not to "${kind}".`);
  }
  if (kind !== "build" && values.images === true) throw new TypeError(`--images belongs to "build".`);
  if (kind === "build") return { kind, images: values.images === true };
  if (kind !== "run") return { kind };
  if (values.list === true) return { kind: "list", ci: values.ci === true };
  return {
    kind,
    ci: values.ci === true,
    only: values.only === undefined ? undefined : splitNames(values.only),
    keep: values.keep === true,
    reuse: values.reuse === true,
  };
}

function splitNames(values: readonly string[]): readonly string[] {
  const names = values.flatMap((value) => value.split(",")).map((name) => name.trim());
  if (names.includes("")) throw new TypeError("--only wants names: --only NAME[,NAME].");
  return names;
}

/** The scenarios that a run is about, in their declared order. Throws TypeError for a name that does not exist, and for a choice that leaves none. */
export function selectScenarios<T extends { readonly name: string; readonly ci: boolean }>(
  scenarios: readonly T[],
  choice: Pick<RunCommand, "ci" | "only">,
): readonly T[] {
  const { only } = choice;
  const unknown = only?.find((name) => !scenarios.some((scenario) => scenario.name === name));
  if (unknown !== undefined)
    throw new TypeError(
      `There is no scenario "${unknown}"; there are: ${scenarios.map(({ name }) => name).join(", ")}.`,
    );
  const chosen = scenarios.filter(
    (scenario) => (only?.includes(scenario.name) ?? true) && (!choice.ci || scenario.ci),
  );
  if (chosen.length === 0) throw new TypeError("No scenario is left by these options.");
  return chosen;
}
