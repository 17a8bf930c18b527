// The Go programs of these tests, built once: etcd, etcdctl and etcdutl from etcd's own modules, and our scenarios.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { cached, type Inputs } from "../../../e2e/src/cache.ts";
import { layoutOf, type Layout } from "../../../e2e/src/layout.ts";
import { run } from "../../support/run.ts";

const goFolder = join(import.meta.dirname, "go");

/** Where things are built, and the repository: as the Kubernetes harness has it, so that both share one cache. */
export const layout: Layout = layoutOf(process.env, join(import.meta.dirname, "../../.."));

const BUILD_MS_MAX = 30 * 60_000;

const ETCD_PROGRAMS = {
  etcd: "go.etcd.io/etcd/server/v3",
  etcdctl: "go.etcd.io/etcd/etcdctl/v3",
  etcdutl: "go.etcd.io/etcd/etcdutl/v3",
} as const;

/** Paths of etcd's own programs, of the version that go.mod pins. */
export type EtcdPrograms = Readonly<Record<keyof typeof ETCD_PROGRAMS, string>>;

const goEnvironment = (): NodeJS.ProcessEnv => ({
  ...process.env,
  CGO_ENABLED: "0",
  // An exported GOTOOLCHAIN is obeyed; otherwise an older Go may fetch the version that go.mod asks for.
  GOTOOLCHAIN: process.env["GOTOOLCHAIN"] ?? "auto",
  GOFLAGS: "-mod=readonly -buildvcs=false -trimpath",
});

async function go(args: readonly string[]): Promise<string> {
  // Low priority: compiling takes minutes of every core, and the machine may have other work.
  const options = { cwd: goFolder, env: goEnvironment(), timeoutMs: BUILD_MS_MAX };
  const { code, out, err } = await run("nice", ["-n", "10", "go", ...args], options);
  if (code !== 0) throw new Error(`go ${args.join(" ")} ended with ${String(code)}:\n${err}`);
  return out;
}

function sources(select: (name: string) => boolean): Inputs {
  const files = readdirSync(goFolder).filter(select);
  return Object.fromEntries(files.map((name) => [name, readFileSync(join(goFolder, name), "utf8")]));
}

async function built(
  name: string,
  inputs: Inputs,
  programs: Readonly<Record<string, string>>,
): Promise<string> {
  const version = await go(["version"]);
  return cached(layout.cache, name, { ...inputs, version }, async (folder) => {
    for (const [program, source] of Object.entries(programs))
      await go(["build", "-ldflags=-s -w", "-o", join(folder, program), source]);
  });
}

/** Builds what is not built yet: minutes when nothing is in Go's cache. */
export async function etcdPrograms(): Promise<EtcdPrograms> {
  const inputs = sources((name) => name === "go.mod" || name === "go.sum");
  const folder = await built("etcd-programs", inputs, ETCD_PROGRAMS);
  return { etcd: join(folder, "etcd"), etcdctl: join(folder, "etcdctl"), etcdutl: join(folder, "etcdutl") };
}

/** @returns the path of `etcd-conformance`, built from the sources as they are now */
export async function conformanceProgram(): Promise<string> {
  const inputs = sources((name) => name.endsWith(".go") || name.startsWith("go."));
  return join(await built("etcd-conformance", inputs, { "etcd-conformance": "." }), "etcd-conformance");
}
