import { Command, CommanderError } from "commander";
import { parseDuration } from "../arguments.ts";
import { describe, EXIT } from "../exit-codes.ts";
import type { Terminal } from "../terminal.ts";
import { cellOfMember, requestAction, resume } from "./actions.ts";
import type { ActionOptions } from "./actions.ts";
import { createKubectl } from "./kubectl.ts";
import type { Kubectl } from "./kubectl.ts";
import { writeReport } from "./report.ts";
import { CELLS } from "./shapes.ts";
import type { CellShape } from "./shapes.ts";
import { statusPicture } from "./status-picture.ts";

interface KubeFlags {
  readonly namespace?: string;
  readonly context?: string;
  readonly kubeconfig?: string;
  readonly kubectl: string;
}

interface WaitFlags {
  readonly wait: boolean;
  readonly timeout: number;
}

const WAIT_MS = 15 * 60_000;

const HELP = `
Actions create a CellOperation; the operator does it when that is safe. Deleting the object withdraws what has not begun.

Examples:
  kubectl lockstep status main -n infra
  kubectl lockstep replace main-x7k2p -n infra        a new member in its zone, then this one leaves
  kubectl lockstep transfer-leader main -n infra
  kubectl lockstep report main -n infra               a folder to send to whoever helps, without secrets`;

/** Runs one command line of \`kubectl lockstep\` (also \`lockstep kube\`). @returns the exit code. */
export async function runKube(
  args: readonly string[],
  terminal: Terminal,
  makeKubectl: (program: string, common: readonly string[]) => Kubectl = createKubectl,
): Promise<number> {
  let exitCode: number = EXIT.ok;
  try {
    const program = buildKubeProgram(terminal, makeKubectl, (code) => {
      exitCode = code;
    });
    await program.parseAsync([...args], { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    const described = describe(error);
    terminal.err(`lockstep: ${described.message}\n`);
    if (described.hint !== undefined) terminal.err(`${described.hint}\n`);
    return described.exitCode;
  }
}

function buildKubeProgram(
  terminal: Terminal,
  makeKubectl: (program: string, common: readonly string[]) => Kubectl,
  onExitCode: (code: number) => void,
): Command {
  const program = new Command("kubectl lockstep")
    .description("Lockstep cells on Kubernetes: look at them, and ask the operator for one-off actions.")
    .showHelpAfterError("(kubectl lockstep --help explains)")
    .exitOverride()
    .configureOutput({ writeOut: (text) => terminal.out(text), writeErr: (text) => terminal.err(text) })
    .option("-n, --namespace <name>", "Kubernetes namespace of the cell (default: that of the context)")
    .option("--context <name>", "context of the kubeconfig")
    .option("--kubeconfig <file>", "kubeconfig (default: kubectl's own rules)")
    .option("--kubectl <program>", "the kubectl to run", "kubectl")
    .addHelpText("after", HELP);
  const options = (waitMs = 0): ActionOptions => {
    const flags = program.opts<KubeFlags>();
    const common = [
      ...(flags.context === undefined ? [] : ["--context", flags.context]),
      ...(flags.kubeconfig === undefined ? [] : ["--kubeconfig", flags.kubeconfig]),
    ];
    return {
      kubectl: makeKubectl(flags.kubectl, common),
      terminal,
      namespace: flags.namespace === undefined ? [] : ["-n", flags.namespace],
      waitMs,
    };
  };
  addLooking(program, options, onExitCode);
  addActions(program, options, onExitCode);
  return program;
}

type MakeOptions = (waitMs?: number) => ActionOptions;

function addLooking(program: Command, options: MakeOptions, onExitCode: (code: number) => void): void {
  program
    .command("status")
    .description("a cell on one screen: members, zones, lag, the change under way and what it waits for")
    .argument("<cell>")
    .action(async (cell: string) => {
      const { kubectl, terminal, namespace } = options();
      const text = await kubectl.run(["get", CELLS, cell, ...namespace, "-o", "json"]);
      const shown = JSON.parse(text) as CellShape;
      terminal.out(statusPicture(shown, Date.now()));
      const ready = shown.status?.conditions?.find((condition) => condition.type === "Ready");
      onExitCode(ready?.status === "True" ? EXIT.ok : EXIT.failed);
    });
  program
    .command("report")
    .description("what somebody who helps needs to see, without secrets, in a folder")
    .argument("<cell>")
    .option("--to <folder>", "the folder (default: lockstep-report-CELL-TIME)")
    .action(async (cell: string, flags: { readonly to?: string }) => {
      const folder =
        flags.to ?? `lockstep-report-${cell}-${new Date().toISOString().replace(/[:.]/g, "-").slice(0, 19)}`;
      const made = options();
      const files = await writeReport({ ...made, folder }, cell);
      made.terminal.err(`${String(files.length)} files; look through them before you send them\n`);
      made.terminal.out(`${folder}\n`);
    });
}

function addActions(program: Command, options: MakeOptions, onExitCode: (code: number) => void): void {
  const waiting = (command: Command): Command =>
    command
      .option("--no-wait", "ask for it and print the CellOperation's name")
      .option("--timeout <duration>", "wait at most this long", parseDuration, WAIT_MS);
  const waitOf = (flags: WaitFlags): number => (flags.wait ? flags.timeout : 0);

  for (const [name, action, what] of [
    ["replace", "Replace", "replace a member: a new one joins and catches up before it leaves"],
    ["restart", "Restart", "restart a member on its own volume, when no other is sick"],
  ] as const) {
    waiting(program.command(name).description(what).argument("<member>")).action(
      async (member: string, flags: WaitFlags) => {
        const made = options(waitOf(flags));
        const cell = await cellOfMember(made, member);
        onExitCode(await requestAction(made, { cell, action, member }));
      },
    );
  }
  waiting(
    program
      .command("transfer-leader")
      .description("move leadership, to MEMBER or to the most caught-up other voter")
      .argument("<cell>")
      .argument("[member]"),
  ).action(async (cell: string, member: string | undefined, flags: WaitFlags) => {
    const request = {
      cell,
      action: "TransferLeadership" as const,
      ...(member === undefined ? {} : { member }),
    };
    onExitCode(await requestAction(options(waitOf(flags)), request));
  });
  waiting(
    program
      .command("drain")
      .description("replace the cell's members that are on NODE by members elsewhere")
      .argument("<cell>")
      .argument("<node>"),
  ).action(async (cell: string, node: string, flags: WaitFlags) => {
    onExitCode(await requestAction(options(waitOf(flags)), { cell, action: "Drain", node }));
  });
  program
    .command("pause")
    .description("let the operator change nothing of a cell, until resume; it still looks and tells")
    .argument("<cell>")
    .action(async (cell: string) => {
      onExitCode(await requestAction(options(), { cell, action: "Pause" }));
    });
  program
    .command("resume")
    .description("end a pause that `pause` began")
    .argument("<cell>")
    .action(async (cell: string) => onExitCode(await resume(options(), cell)));
}
