// The servers that the guards are tested with: Debian's PostgreSQL and Redis, installed where they are missing, and an S3
// server built from a Go module.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { cached } from "../../../e2e/src/cache.ts";
import { layoutOf } from "../../../e2e/src/layout.ts";
import { run } from "../../support/run.ts";

const POSTGRES_FOLDER = "/usr/lib/postgresql";
const POSTGRES_VERSION_MIN = 13;
const INSTALL_MS_MAX = 600_000;
const BUILD_MS_MAX = 600_000;
const S3_SOURCES = join(import.meta.dirname, "../s3-server");

/** A program, or why there is none: a test that needs it is skipped with that. */
export type Found = { readonly path: string } | { readonly missing: string };

const onPath = (name: string): string | undefined =>
  [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin", "/usr/local/go/bin"]
    .filter((folder) => folder !== "")
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path));

/** With which servers are started (server-process.ts). */
const WITHOUT_SETPRIV =
  "there is no setpriv here (util-linux, on Linux), which these servers are started with";

/** The folder of PostgreSQL's programs, of the newest version there is. */
function postgresFolder(): string | undefined {
  const versions = existsSync(POSTGRES_FOLDER) ? readdirSync(POSTGRES_FOLDER).map(Number) : [];
  const folders = versions
    .filter((version) => version >= POSTGRES_VERSION_MIN)
    .sort((a, b) => b - a)
    .map((version) => join(POSTGRES_FOLDER, String(version), "bin"));
  return folders.find((folder) => existsSync(join(folder, "initdb")));
}

/** @returns the folder with `postgres` and `initdb` */
export function postgresPrograms(): Promise<Found> {
  return findOrInstall("postgresql", postgresFolder);
}

/** @returns the path of `redis-server` */
export function redisProgram(): Promise<Found> {
  return findOrInstall("redis-server", () => onPath("redis-server"));
}

async function findOrInstall(name: string, find: () => string | undefined): Promise<Found> {
  if (onPath("setpriv") === undefined) return { missing: WITHOUT_SETPRIV };
  const there = find();
  if (there !== undefined) return { path: there };
  const missing = `there is no ${name} here; as root these tests would install the Debian package`;
  if (process.getuid?.() !== 0 || onPath("apt-get") === undefined) return { missing };
  // Two test files may come at the same time; apt-get itself waits for the lock when told to.
  const wait = ["-o", "DPkg::Lock::Timeout=300"];
  const options = {
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
    timeoutMs: INSTALL_MS_MAX,
  };
  await run("apt-get", [...wait, "update", "-qq"], options);
  const install = [...wait, "install", "-y", "-qq", "--no-install-recommends", name];
  const { code, err } = await run("apt-get", install, options);
  const installed = find();
  if (installed === undefined)
    throw new Error(`apt-get install ${name} ended with ${String(code)}, and it is still not there: ${err}`);
  return { path: installed };
}

/** @returns the path of the S3 server, built from `s3-server/` once */
export async function s3Program(): Promise<Found> {
  if (onPath("setpriv") === undefined) return { missing: WITHOUT_SETPRIV };
  const go = onPath("go");
  if (go === undefined) return { missing: "there is no Go here, which the S3 server is built with" };
  const options = {
    cwd: S3_SOURCES,
    env: {
      ...process.env,
      CGO_ENABLED: "0",
      // An older Go may fetch the version that go.mod asks for.
      GOTOOLCHAIN: process.env["GOTOOLCHAIN"] ?? "auto",
      GOFLAGS: "-mod=readonly -buildvcs=false -trimpath",
    },
    timeoutMs: BUILD_MS_MAX,
  };
  const command = async (...args: string[]): Promise<string> => {
    const { code, out, err } = await run("nice", ["-n", "10", go, ...args], options);
    if (code !== 0) throw new Error(`go ${args.join(" ")} ended with ${String(code)}:\n${err}`);
    return out;
  };
  const sources = readdirSync(S3_SOURCES).map((name) => [name, readFileSync(join(S3_SOURCES, name), "utf8")]);
  const inputs = { ...(Object.fromEntries(sources) as Record<string, string>), go: await command("version") };
  const folder = await cached(layoutOf(process.env, S3_SOURCES).cache, "s3-server", inputs, async (made) => {
    await command("build", "-ldflags=-s -w", "-o", join(made, "s3-server"), ".");
  });
  return { path: join(folder, "s3-server") };
}
