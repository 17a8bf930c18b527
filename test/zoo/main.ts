// `npm run zoo`: worker processes under locks of every kind, at a real cell and with a real PostgreSQL as what they guard,
// are stopped, suspended, kept busy, cut off and killed, and so is the cell. Then everything is judged.
import { parseArgs } from "node:util";
import { PostgresServer } from "../guards/support/postgres-server.ts";
import { CELL_FAULTS } from "./cell-faults.ts";
import { LAWS } from "./judge.ts";
import { WORKER_FAULTS } from "./worker-faults.ts";
import { KINDS } from "./worker/report.ts";
import { runZoo } from "./zoo.ts";

interface Fault {
  readonly kind: string;
  readonly weight: number;
  readonly about: string;
}
const listed = (faults: readonly Fault[]): string =>
  faults.map(({ kind, weight, about }) => `  ${kind.padEnd(17)} ${String(weight)}  ${about}`).join("\n");

const HELP = `npm run zoo -- [--minutes 10] [--seed N] [--workers 8] [--ttl-ms 3000] [--without-guard] [--careless]

Worker processes become owners (${KINDS.join(", ")}) and write under their token to a journal in
PostgreSQL. Faults happen as the seed says. What must hold:
${Object.values(LAWS)
  .map((law) => `  ${law}`)
  .join("\n")}

Of a worker (weight):
${listed(WORKER_FAULTS)}
Of the cell:
${listed(CELL_FAULTS)}

--without-guard lets PostgreSQL take every write, --careless lets workers not look whether they are still owners. With both,
the run must fail: that shows what the two are for. A failure keeps all that was seen in a folder, and exits with 1.

The same seed draws the same faults; what they meet is decided by real time.`;

const { values: flags } = parseArgs({
  options: {
    minutes: { type: "string", default: "10" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    workers: { type: "string", default: "8" },
    "ttl-ms": { type: "string", default: "3000" },
    "without-guard": { type: "boolean", default: false },
    careless: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});

if (flags.help) {
  console.log(HELP);
  process.exit(0);
}
const minutes = Number(flags.minutes);
const seed = Number(flags.seed);
const workers = Number(flags.workers);
const ttlMs = Number(flags["ttl-ms"]);
if (!(minutes > 0) || !Number.isSafeInteger(seed) || !(workers >= 2) || !(ttlMs >= 2_000)) {
  console.error(
    "--minutes is above 0, --seed a whole number, --workers at least 2, --ttl-ms at least 2000 (see --help)",
  );
  process.exit(1);
}
const postgres = await PostgresServer.find();
if ("missing" in postgres) {
  console.error(postgres.missing);
  process.exit(1);
}
console.log(
  `zoo: seed ${String(seed)}, ${String(minutes)} minutes, ${String(workers)} workers${flags["without-guard"] ? ", without the guard" : ""}${flags.careless ? ", careless" : ""}`,
);

const interrupt = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => interrupt.abort());

const verdict = await runZoo({
  ...{ seed, workers, ttlMs, postgres: postgres.path, forMs: minutes * 60_000 },
  guarded: !flags["without-guard"],
  careful: !flags.careless,
  print: (line) => console.log(line),
  interrupt: interrupt.signal,
});
if (interrupt.signal.aborted) process.exit(130);
console.log(`\n${verdict.lines.join("\n")}`);
if (verdict.folder !== undefined) console.log(`\nkept for you: ${verdict.folder}`);
console.log(verdict.passed ? "\npassed" : "\nFAILED");
process.exit(verdict.passed ? 0 : 1);
