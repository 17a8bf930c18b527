/** `npm run sim`: histories by the thousand, one by its seed, or each canary until it is caught. */
import { availableParallelism } from "node:os";
import { Command, InvalidArgumentError } from "commander";
import { activeCanary, assertCanaryInPlace, launchOf } from "./canaries/patching.ts";
import { allCaught, renderTable, runCanaries } from "./canaries/table.ts";
import { describePlan, drawPlan } from "./plan.ts";
import { Campaign } from "./runner/campaign.ts";
import type { CampaignReport } from "./runner/campaign.ts";
import { replayCommand } from "./runner/replay.ts";
import { renderCoverage, zeroes } from "./runner/report.ts";
import { shrink } from "./runner/shrink.ts";
import { runSeed } from "./simulation.ts";

interface Flags {
  readonly seed?: number;
  readonly seeds: number;
  readonly from: number;
  readonly jobs: number;
  readonly trace?: true;
  readonly shrink?: true;
  readonly canaries?: true;
  readonly canary?: readonly string[];
  readonly canarySeeds: number;
}

const EXIT_VIOLATION = 1;

const program = new Command("sim")
  .description(
    "Deterministic simulation: production members, log, state machine, sessions, watches and clients over a simulated clock, disk and network. One seed is one history.",
  )
  .option("--seed <n>", "replay one history", count)
  .option("--trace", "with --seed: tell it step by step")
  .option("--shrink", "with --seed: look for fewer faults and a shorter history that still fail")
  .option("--seeds <n>", "how many histories", count, 500)
  .option("--from <n>", "the first seed", count, 1)
  .option("--jobs <n>", "processes at once", count, Math.max(1, availableParallelism()))
  .option("--canaries", "bring back each known bug and look for the seed that catches it")
  .option("--canary <names...>", "only these canaries")
  .option("--canary-seeds <n>", "how many seeds a canary gets", count, 1_000)
  .addHelpText(
    "after",
    `
Examples:
  npm run sim -- --seeds 10000          ten thousand histories on all cores
  npm run sim -- --seed 4711 --trace    one history, told step by step
  npm run sim -- --seed 4711 --shrink   the same failure with less around it
  npm run sim -- --canaries             does every known bug get caught?

A failure prints its seed, the law that was broken and the command that replays it.
How to add a fault or a law: docs/testing.md`,
  );

// Whoever reads the trace may have seen enough.
process.stdout.on("error", () => process.exit(0));
program.parse();
process.exitCode = await main(program.opts<Flags>());

async function main(flags: Flags): Promise<number> {
  assertCanaryInPlace(process.env);
  if (flags.canaries === true || flags.canary !== undefined) return canaries(flags);
  if (flags.seed !== undefined) return replay(flags.seed, flags);
  return campaign(flags);
}

/** One history. */
async function replay(seed: number, flags: Flags): Promise<number> {
  const plan = drawPlan(seed);
  console.log(`seed ${String(seed)}: ${describePlan(plan)}`);
  console.log(`replay: ${replayCommand(seed, activeCanary()?.name)}`);
  const tell = (line: string): void => console.log(line);
  const started = performance.now();
  const outcome = await runSeed({ seed, ...(flags.trace === true ? { onTrace: tell } : {}) });
  const seconds = (performance.now() - started) / 1_000;
  console.log(
    `${String(outcome.steps)} steps, ${outcome.simulatedSeconds.toFixed(1)} simulated s in ${seconds.toFixed(2)} s, fingerprint ${outcome.fingerprint}`,
  );
  if (outcome.violation === undefined) {
    console.log("no law was broken");
    return 0;
  }
  console.log(`VIOLATION ${outcome.violation.message}`);
  if (flags.shrink === true) await shrink(outcome, tell);
  return EXIT_VIOLATION;
}

async function campaign(flags: Flags): Promise<number> {
  const { from, seeds, jobs } = flags;
  console.log(`seeds ${String(from)} to ${String(from + seeds - 1)}, ${String(jobs)} at once`);
  const report = await new Campaign({ from, to: from + seeds - 1, jobs, onProgress: progress() }).run();
  console.log(renderCoverage(report));
  return verdict(report, seeds);
}

function verdict(report: CampaignReport, seeds: number): number {
  for (const { seed, text } of report.violations) {
    console.log(
      `\nVIOLATION seed ${String(seed)}: ${text}\nreplay: ${replayCommand(seed, activeCanary()?.name)}`,
    );
  }
  if (report.violations.length > 0) return EXIT_VIOLATION;
  const missing = zeroes(report, seeds);
  if (missing.length > 0) {
    console.log(`\nNEVER EXERCISED: ${missing.join(", ")}. What no history does, no history proves.`);
    return EXIT_VIOLATION;
  }
  console.log(`\n${String(report.seeds)} seeds, no law was broken`);
  return 0;
}

/** A line now and then: long work shows that it lives. */
function progress(): (report: CampaignReport) => void {
  let nextMs = 10_000;
  let told = 0;
  const started = performance.now();
  return (report) => {
    for (const { seed, law } of report.violations.slice(told))
      console.log(`seed ${String(seed)} breaks ${law}`);
    told = report.violations.length;
    const elapsedMs = performance.now() - started;
    if (elapsedMs < nextMs) return;
    nextMs = elapsedMs + 10_000;
    const rate = (report.seeds / elapsedMs) * 60_000;
    console.log(
      `${(elapsedMs / 1_000).toFixed(0).padStart(5)} s: ${String(report.seeds)} seeds, ${String(Math.round(rate))} a minute, ${String(report.violations.length)} violations`,
    );
  };
}

async function canaries(flags: Flags): Promise<number> {
  const results = await runCanaries({
    ...{ seedsMax: flags.canarySeeds, jobs: flags.jobs },
    ...(flags.canary === undefined ? {} : { only: flags.canary }),
    run: async (canary, from, to) => {
      const report = await new Campaign({
        from,
        to,
        jobs: 1,
        launch: launchOf(canary.name),
        untilFirst: true,
      }).run();
      const first = report.violations[0];
      if (first !== undefined) console.log(`${canary.name}: seed ${String(first.seed)}, ${first.law}`);
      else console.log(`${canary.name}: seeds ${String(from)} to ${String(to)} passed`);
      return first;
    },
  });
  console.log(renderTable(results));
  return allCaught(results) ? 0 : EXIT_VIOLATION;
}

function count(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1)
    throw new InvalidArgumentError("a whole number from 1 is wanted");
  return value;
}
