// `npm test`: what a developer runs before each commit. `--nightly` adds what is too long for that. `--etcd-clients` runs
// what needs Go and some minutes to build: etcd's own clients, and a kube-apiserver, on a cell.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const nightly = process.argv.includes("--nightly");
const etcdClientsOnly = process.argv.includes("--etcd-clients");
const scratch = mkdtempSync(join(tmpdir(), "lockstep-tests-"));
const total = { pass: 0, fail: 0, skipped: 0 };

const TEST_MS_MAX = 600_000;
/** Of one step, however many tests it has: what a test left open keeps its process alive, and nothing else ends it. */
const STEP_MS_MAX = nightly ? 14_400_000 : etcdClientsOnly ? 2_700_000 : 1_500_000;
/** What builds programs from their sources first, or lets clients write for ten minutes. */
const LONG_TEST_MS_MAX = 2_400_000;

interface RunOptions {
  readonly concurrency: number;
  /** Of one test. Default {@link TEST_MS_MAX}. */
  readonly timeoutMs?: number;
}

/** Dots on the terminal (with every failure told at the end), the figures from a TAP report beside it. */
function run(name: string, patterns: readonly string[], options: RunOptions): void {
  const started = performance.now();
  console.log(`\n── ${name}`);
  const report = join(scratch, `${name}.tap`);
  const result = spawnSync(
    process.execPath,
    [
      "--test",
      `--test-timeout=${String(options.timeoutMs ?? TEST_MS_MAX)}`,
      ...["--test-reporter=dot", "--test-reporter-destination=stdout"],
      ...["--test-reporter=tap", `--test-reporter-destination=${report}`],
      `--test-concurrency=${String(options.concurrency)}`,
      ...patterns,
    ],
    {
      cwd: root,
      stdio: "inherit",
      timeout: STEP_MS_MAX,
      env: { ...process.env, LOCKSTEP_TEST_DEPTH: nightly ? "nightly" : "commit" },
    },
  );
  const tap = readFileSync(report, "utf8");
  const count = (what: string): number => Number(new RegExp(`^# ${what} (\\d+)$`, "m").exec(tap)?.[1] ?? 0);
  for (const what of ["pass", "fail", "skipped"] as const) total[what] += count(what);
  const seconds = ((performance.now() - started) / 1000).toFixed(0);
  const ran = count("pass") > 0;
  if (result.error !== undefined)
    console.log(`\n${name}: ${result.error.message}, the end of its time: ${seconds} s`);
  console.log(
    `${result.status === 0 && ran ? "✓" : "✗"} ${name} (${seconds} s)${ran ? "" : ": no test ran"}`,
  );
  if (result.status !== 0 || !ran) finish(1);
}

function finish(code: number): never {
  rmSync(scratch, { recursive: true, force: true });
  console.log(
    `\n${String(total.pass)} passed, ${String(total.fail)} failed, ${String(total.skipped)} skipped`,
  );
  process.exit(code);
}

/** A program whose verdict is its exit code; it says itself what it did. */
function runProgram(name: string, file: string, args: readonly string[]): void {
  const started = performance.now();
  console.log(`\n── ${name}`);
  const { status } = spawnSync(process.execPath, [join(root, file), ...args], {
    cwd: root,
    stdio: "inherit",
  });
  const seconds = ((performance.now() - started) / 1000).toFixed(0);
  console.log(`${status === 0 ? "✓" : "✗"} ${name} (${seconds} s)`);
  total[status === 0 ? "pass" : "fail"] += 1;
  if (status !== 0) finish(1);
}

/** Each is built from its Go module once, into the cache of the Kubernetes harness. */
function runEtcdClients(): void {
  const clients = nightly ? "*" : "{etcdctl,members,go,apiserver}";
  const options = { concurrency: 1, timeoutMs: LONG_TEST_MS_MAX };
  run("etcd clients", [`test/conformance/etcd/${clients}.test.ts`], options);
}

if (etcdClientsOnly) {
  runEtcdClients();
  finish(0);
}
run(
  "unit",
  ["{gateway,client,cell,cli,bench,operator,crds,charts,e2e}/src/**/*.test.ts", "scripts/**/*.test.ts"],
  { concurrency: 2 },
);
run("proof", ["test/{sim,linearizability,fuzz}/**/*.test.ts"], { concurrency: 2 });
runProgram("simulation", "test/sim/main.ts", ["--seeds", nightly ? "10000" : "500"]);
if (nightly) runProgram("operator simulation", "operator/src/testing/main.ts", ["--seeds", "5000"]);
if (nightly) runProgram("canaries", "test/sim/main.ts", ["--canaries"]);
if (nightly) runProgram("fuzz", "test/fuzz/main.ts", ["--cases", "1000000"]);
// Real processes compete for the same two cores: one file at a time.
run("conformance", ["test/conformance/*.test.ts", "test/conformance/etcd/npm/*.test.ts"], { concurrency: 1 });
// Against a real PostgreSQL, Redis and S3-like server, which they bring.
run("guards", ["test/guards/*.test.ts"], { concurrency: 1 });
run("recipes", ["test/recipes/**/*.test.ts"], { concurrency: 1 });
// As it is published, in an empty project, on the oldest Node that it allows too.
run("package", ["test/package/*.test.ts"], { concurrency: 1 });
run("cluster", ["test/{cluster,torture}/**/*.test.ts"], { concurrency: 1 });
run("zoo", ["test/zoo/**/*.test.ts"], { concurrency: 1, timeoutMs: LONG_TEST_MS_MAX });
if (nightly) runEtcdClients();
if (nightly) runProgram("torture", "test/torture/main.ts", ["--minutes", "10"]);
if (nightly) runProgram("kubernetes", "e2e/src/main.ts", []);

finish(0);
