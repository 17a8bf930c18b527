// `npm run torture`: a cell of real member processes on real disks, tortured at random from a seed for a fixed time, then
// healed and judged.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { tryMounting } from "./cell/volume.ts";
import { FAULTS } from "./nemesis/nemesis.ts";
import { torture } from "./run.ts";

const KINDS = FAULTS.map(({ kind }) => kind);
const HELP = `npm run torture -- [--minutes 10] [--seed N] [--faults kill,pause,...] [--without wipe,...]

Starts a cell of three members as processes, each on a file system of its own where root may mount one, with a client
workload of a few hundred operations a second: registers, keys that are written once, sessions, watches, and locks in
processes of their own that are stopped past their leases. Faults happen as the seed says, two troubles and a change of
the membership at a time. Then everything heals, comes to rest, and is judged: linearizability, acknowledged writes,
exactly-once, watches, sessions, locks with and without a guard, digests, orphans. A failure keeps logs, data folders and
the history in a folder, and exits with 1.

The same seed draws the same faults in the same order. What they meet is decided by real time, so a replay is likely, not
certain, to fail again; what it leaves behind is meant to be enough to understand it.

Faults (all by default; weight within their lane):
${FAULTS.map(({ kind, weight, about }) => `  ${kind.padEnd(14)} ${String(weight).padStart(2)}  ${about}`).join("\n")}

--lying-disks lets every disk report writes as durable before they are. With power cuts such a torture must fail: that
shows that they bite.

A quick look: npm run torture -- --minutes 0.5 --faults kill,power-cut-all`;

const { values: flags } = parseArgs({
  options: {
    minutes: { type: "string", default: "10" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    faults: { type: "string", default: KINDS.join(",") },
    without: { type: "string", default: "" },
    "lying-disks": { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});

if (flags.help) {
  console.log(HELP);
  process.exit(0);
}

const minutes = Number(flags.minutes);
const seed = Number(flags.seed);
const list = (text: string): string[] => text.split(",").filter((kind) => kind !== "");
const unknown = [...list(flags.faults), ...list(flags.without)].find((kind) => !KINDS.includes(kind));
if (!(minutes > 0) || !Number.isSafeInteger(seed) || unknown !== undefined) {
  console.error(
    unknown === undefined
      ? "--minutes takes a number above 0, --seed a whole number"
      : `there is no fault ${unknown}; there are ${KINDS.join(", ")}`,
  );
  process.exit(1);
}

const kinds = new Set(list(flags.faults).filter((kind) => !list(flags.without).includes(kind)));
const probe = mkdtempSync(join(tmpdir(), "lockstep-torture-probe-"));
const mounting = tryMounting(probe);
rmSync(probe, { recursive: true, force: true });

const off = KINDS.filter((kind) => !kinds.has(kind)).map((kind) => `${kind} (not asked for)`);
if (mounting.kind === "folder" && kinds.has("full-disk")) {
  off.push(`full-disk to the last byte (${mounting.reason}; the disk only says that it is full)`);
}
console.log(
  `torture: seed ${String(seed)}, ${String(minutes)} minutes; faults: ${[...kinds].join(", ")}; off: ${off.join(", ") || "none"}; replay: npm run torture -- --minutes ${String(minutes)} --seed ${String(seed)}${kinds.size === KINDS.length ? "" : ` --faults ${[...kinds].join(",")}`}`,
);

const interrupt = new AbortController();
let asked = 0;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    asked += 1;
    if (asked === 1) console.log(`${signal}: cleaning up`);
    // Somebody is in a hurry: the process's last words still remove the mounts.
    if (asked > 2) process.exit(130);
    interrupt.abort();
  });
}

const verdict = await torture({
  seed,
  forMs: minutes * 60_000,
  kinds,
  mounting,
  lyingDisks: flags["lying-disks"],
  print: (line) => console.log(line),
  interrupt: interrupt.signal,
});
if (interrupt.signal.aborted) process.exit(130);
console.log(`\n${verdict.lines.join("\n")}`);
if (verdict.folder !== undefined) console.log(`\nkept for you: ${verdict.folder}`);
console.log(verdict.passed ? "\npassed" : "\nFAILED");
process.exit(verdict.passed ? 0 : 1);
