/** `node test/fuzz/main.ts --help` */
import { parseArgs } from "node:util";
import { runCampaign, shareOut } from "./campaign.ts";
import type { Target } from "./contract.ts";
import { describeFindings, describeFinding, table } from "./report.ts";
import { inputOf, judge } from "./runner.ts";
import { TARGETS } from "./targets/index.ts";

const HELP = `Feeds damaged bytes to every decoder: of the wire, of the log, of snapshots, of HTTP requests.

A decoder may accept its input or refuse it with the error that it documents. Everything else is a finding:
  crash   it threw something else
  hang    one case took over 200 ms, or never ended
  memory  it allocated more than 512 KiB and 512 bytes for each byte of input
  law     what it accepted does not encode to something that decodes equal, or it refused what is valid

  node test/fuzz/main.ts                          100,000 cases over all targets
  node test/fuzz/main.ts --cases 1000000          a million
  node test/fuzz/main.ts --target wal-recover     one target (repeatable)
  node test/fuzz/main.ts --target T --seed N --case I
                                                  one case again: its input in hex, and how it ends

  --seed N      default: from the clock; printed, so that a run can be repeated
  --list        the targets, one line each
  --hang-ms N   when a case counts as one that never ends (default 10000)

A case is a function of target, seed and index: it replays alone (and one that never ends does not end here, either).
To keep a failure for good, put a file into test/fuzz/kept/ with { "target", "hex", "why", "verdict" }, the verdict
being how the decoder must end once it is right, "accepted" or "refused"; npm test feeds it to its target from then on.
Exit code: 0 nothing found, 1 findings, 2 wrong usage.`;

const { values: flags } = parseArgs({
  options: {
    target: { type: "string", multiple: true },
    seed: { type: "string" },
    case: { type: "string" },
    cases: { type: "string", default: "100000" },
    "hang-ms": { type: "string", default: "10000" },
    list: { type: "boolean", default: false },
    help: { type: "boolean", short: "h", default: false },
  },
});

function usage(problem: string): never {
  console.error(`${problem}\nTry --help.`);
  process.exit(2);
}

function whole(text: string, what: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) usage(`${what} is not a whole number: ${text}`);
  return value;
}

function chosen(names: readonly string[] | undefined): readonly Target[] {
  if (names === undefined) return TARGETS;
  return names.map(
    (name) => TARGETS.find((target) => target.name === name) ?? usage(`no target ${name}; --list names them`),
  );
}

async function replay(target: Target, seed: number, index: number): Promise<void> {
  const input = inputOf(target, seed, index);
  console.log(`${target.name}: ${target.about}`);
  console.log(
    `${input.bytes.length} bytes, ${input.valid ? "valid" : "damaged"}: ${input.bytes.toString("hex")}`,
  );
  const { accepted, ms, allocated, problem } = await judge(target, input);
  console.log(`${accepted ? "accepted" : "refused"} in ${ms.toFixed(3)} ms, ${allocated} bytes allocated`);
  if (problem === undefined) return;
  const hex = input.bytes.toString("hex");
  console.log(describeFinding({ target: target.name, seed, index, ...problem, hex }));
  process.exitCode = 1;
}

async function campaign(targets: readonly Target[], seed: number): Promise<void> {
  const cases = whole(flags.cases, "--cases");
  console.log(`seed ${seed}, ${cases} cases over ${targets.length} targets`);
  const result = await runCampaign({
    module: new URL("./targets/index.ts", import.meta.url).href,
    targets,
    seed,
    jobs: shareOut(targets, cases),
    hangMs: whole(flags["hang-ms"], "--hang-ms"),
  });
  console.log(table(result.tallies));
  if (result.findings.length === 0) {
    console.log("nothing found");
    return;
  }
  console.log(`\n${result.findings.length} findings\n\n${describeFindings(result)}`);
  process.exitCode = 1;
}

if (flags.help) console.log(HELP);
else if (flags.list) for (const { name, about } of TARGETS) console.log(`${name.padEnd(26)} ${about}`);
else {
  const targets = chosen(flags.target);
  const seed = flags.seed === undefined ? Date.now() % 1_000_000_000 : whole(flags.seed, "--seed");
  const [only] = targets;
  if (flags.case === undefined) await campaign(targets, seed);
  else if (only === undefined || targets.length !== 1) usage("--case goes with one --target");
  else await replay(only, seed, whole(flags.case, "--case"));
}
