// The `lockstep` command. The only place with argv, and with processTerminal() the only one with the environment,
// signals and the standard streams.
import { run } from "./run.ts";
import { processTerminal } from "./terminal.ts";

process.exitCode = await run(process.argv.slice(2), processTerminal());
