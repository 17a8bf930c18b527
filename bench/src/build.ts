import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BenchError, runToEnd } from "./processes.ts";

const benchRoot = join(import.meta.dirname, "..");
export const cacheDirectory: string = join(benchRoot, ".cache");

const NO_GO = `etcd and its load generator are built with Go, and there is no "go" here.
Install it (Debian, Ubuntu: apt-get install golang; or https://go.dev/dl), 1.21 or newer: it fetches the exact
version that etcd needs by itself. Or run with --skip-etcd.`;

/** An exported GOTOOLCHAIN is obeyed; otherwise an older Go may fetch the version that go.mod asks for. */
function goEnvironment(): NodeJS.ProcessEnv {
  return { GOTOOLCHAIN: "auto", ...process.env };
}

function goVersion(directory: string): string {
  const found = spawnSync("go", ["version"], { cwd: directory, env: goEnvironment(), encoding: "utf8" });
  if (found.error !== undefined) throw new BenchError(NO_GO);
  if (found.status !== 0) throw new BenchError(`"go version" failed in ${directory}:\n${found.stderr}`);
  return found.stdout.trim();
}

function sourceHash(directory: string, version: string): string {
  const hash = createHash("sha256").update(version);
  for (const name of readdirSync(directory).sort())
    hash.update(name).update(readFileSync(join(directory, name)));
  return hash.digest("hex");
}

async function build(name: string, say: (line: string) => void): Promise<string> {
  const directory = join(benchRoot, name);
  const binary = join(cacheDirectory, name);
  const stampFile = `${binary}.stamp`;
  const stamp = sourceHash(directory, goVersion(directory));
  if (existsSync(binary) && existsSync(stampFile) && readFileSync(stampFile, "utf8") === stamp) return binary;
  say(`building ${name} with Go (once; some minutes when nothing is in Go's cache) ...`);
  const started = performance.now();
  await runToEnd({
    // One compiler at a time, and with low priority: the machine may have other work.
    command: "nice",
    args: [
      "-n",
      "10",
      "go",
      "build",
      "-C",
      directory,
      "-p",
      "1",
      "-trimpath",
      "-ldflags=-s -w",
      "-o",
      binary,
      ".",
    ],
    env: goEnvironment(),
    logFile: join(cacheDirectory, `${name}-build.log`),
  });
  writeFileSync(stampFile, stamp);
  say(`built ${name} in ${((performance.now() - started) / 1000).toFixed(0)} s`);
  return binary;
}

export interface Binaries {
  readonly etcd: string;
  readonly etcdload: string;
}

/** Builds what is not built yet. */
export async function buildBinaries(say: (line: string) => void): Promise<Binaries> {
  mkdirSync(cacheDirectory, { recursive: true });
  return { etcd: await build("etcd", say), etcdload: await build("etcdload", say) };
}

/** The version of etcd that bench/etcd/go.mod pins, e.g. `3.6.16`. */
export function etcdVersion(): string {
  const text = readFileSync(join(benchRoot, "etcd/go.mod"), "utf8");
  return /go\.etcd\.io\/etcd\/server\/v3 v(\S+)/.exec(text)?.[1] ?? "of an unknown version";
}
