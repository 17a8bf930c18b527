import { CommanderError } from "commander";
import { runCellProgram } from "./commands/cell-program.ts";
import { describe, EXIT } from "./exit-codes.ts";
import { runKube } from "./kube/program.ts";
import { buildProgram } from "./program.ts";
import type { Terminal } from "./terminal.ts";

/** Commands of this program that are subcommands of the member's, flags and help included. */
const PASSED_THROUGH: Readonly<Record<string, string>> = { serve: "member", verify: "verify", dump: "dump" };

/** Runs one command line. @returns the exit code */
export async function run(args: readonly string[], terminal: Terminal): Promise<number> {
  if (args[0] === "kube") return runKube(args.slice(1), terminal);
  let exitCode: number = EXIT.ok;
  try {
    const passed = PASSED_THROUGH[args[0] ?? ""];
    if (passed !== undefined) return await runCellProgram(terminal, [passed, ...args.slice(1)]);
    const program = buildProgram(terminal, (code) => {
      exitCode = code;
    });
    await program.parseAsync([...args], { from: "user" });
    return exitCode;
  } catch (error) {
    // Commander has said what is wrong, or printed the help that was asked for.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    const described = describe(error);
    terminal.err(`lockstep: ${described.message}\n`);
    if (described.hint !== undefined) terminal.err(`${described.hint}\n`);
    return described.exitCode;
  }
}
