// `npm test`: what a developer runs before each commit. `--nightly` adds what is too long for that.
import { spawnSync } from "node:child_process";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const nightly = process.argv.includes("--nightly");

function run(name: string, patterns: readonly string[], options: { readonly concurrency: number }): void {
  const started = performance.now();
  console.log(`\n── ${name}`);
  const result = spawnSync(
    process.execPath,
    [
      "--test",
      "--test-reporter=dot",
      "--test-reporter-destination=stdout",
      `--test-concurrency=${String(options.concurrency)}`,
      ...patterns,
    ],
    {
      cwd: root,
      stdio: "inherit",
      env: { ...process.env, LOCKSTEP_TEST_DEPTH: nightly ? "nightly" : "commit" },
    },
  );
  const seconds = ((performance.now() - started) / 1000).toFixed(0);
  if (result.status !== 0) {
    console.error(`✗ ${name} (${seconds} s)`);
    process.exit(1);
  }
  console.log(`✓ ${name} (${seconds} s)`);
}

run("unit", ["{gateway,client,cell,cli,bench}/src/**/*.test.ts"], { concurrency: 2 });
// Real processes compete for the same two cores: one file at a time.
run("conformance", ["test/conformance/**/*.test.ts"], { concurrency: 1 });
run("cluster", ["test/cluster/**/*.test.ts"], { concurrency: 1 });
