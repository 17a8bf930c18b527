/**
 * The process that stops COMMAND when the lock is about to be anybody else's. It has a session of its own, so that nothing
 * that stops the command line stops it as well, it needs no network, and it counts by itself: when no later deadline
 * comes any more, the last one holds. Started by client.ts with: grace in ms, the run's mark.
 */
import { createInterface } from "node:readline";
import { readClocks } from "./clocks.ts";
import { Guard, type GuardianMessage } from "./guard.ts";
import { lookAt, processesOf, signalProcess, type ProcessRef } from "./processes.ts";

/** How often it looks at the clocks: one long timer would sleep with the machine. */
const LOOK_MS = 50;
/** KILL is repeated, for processes that came meanwhile; what survives so many hangs in the kernel. */
const KILL_ROUNDS_MAX = 600;

const [graceMs, mark] = process.argv.slice(2);
if (graceMs === undefined || mark === undefined) throw new Error("started by `lockstep lock` alone");
const guard = new Guard(Number(graceMs));
const except = new Set([process.pid, process.ppid]);
let command: ProcessRef | undefined;
let hasTermed = false;
let killRounds = 0;
/** COMMAND has ended and will not begin, or nobody is there any more who could begin it. */
let isOver = false;

function receive(message: GuardianMessage): void {
  switch (message.kind) {
    case "started":
      command = lookAt(message.pid) ?? { pid: message.pid, startedAt: "ended" };
      return;
    case "deadline":
      guard.lastsUntil(message);
      return;
    case "stop":
      guard.stop(readClocks());
      look();
      return;
    case "ended":
      isOver = true;
      // COMMAND itself may be gone and what it started not: then it goes on until nothing is left.
      if (!hasTermed) process.exit(0);
      look();
  }
}

function look(): void {
  const step = guard.look(readClocks());
  if (step === "wait") return;
  // Before it was told that COMMAND runs, the mark alone tells what belongs to it.
  const members = processesOf(command ?? { pid: -1, startedAt: "none" }, mark ?? "", except);
  if (members.length === 0) {
    hasTermed = true;
    // As long as the command line is there it may still be about to begin COMMAND: that one is met here then.
    if (isOver) process.exit(0);
    return;
  }
  if (step === "kill") {
    for (const member of members) signalProcess(member, "SIGKILL");
    killRounds += 1;
    if (killRounds >= KILL_ROUNDS_MAX) process.exit(0);
  } else if (!hasTermed) {
    hasTermed = true;
    for (const member of members) signalProcess(member, "SIGTERM");
  }
}

// A terminal's hang-up and interrupts are for COMMAND and the command line.
for (const signal of ["SIGHUP", "SIGINT", "SIGTERM", "SIGQUIT"] as const) process.on(signal, () => undefined);
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => receive(JSON.parse(line) as GuardianMessage));
// The command line is gone without a word: nobody renews, and nobody waits for COMMAND.
lines.on("close", () => {
  isOver = true;
  guard.stop(readClocks());
  look();
});
setInterval(look, LOOK_MS);
process.stdout.write("ready\n");
