// Debian packages that the cluster and its images need.
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { commandEnvironment, run } from "./command.ts";
import { E2eError } from "./error.ts";
import { step, type Say } from "./progress.ts";

/** A package, and the program or file by which we see that it is there, whoever brought it. */
interface Requirement {
  readonly package: string;
  readonly probe: string;
}

export const REQUIREMENTS: readonly Requirement[] = [
  { package: "containerd", probe: "containerd" },
  { package: "runc", probe: "runc" },
  { package: "containernetworking-plugins", probe: "/usr/lib/cni/ptp" },
  { package: "iptables", probe: "iptables" },
  { package: "conntrack", probe: "conntrack" },
  { package: "iproute2", probe: "ip" },
  { package: "util-linux", probe: "nsenter" },
  { package: "mount", probe: "losetup" },
  { package: "xfsprogs", probe: "mkfs.xfs" },
  { package: "buildah", probe: "buildah" },
  { package: "mmdebstrap", probe: "mmdebstrap" },
  { package: "openssl", probe: "openssl" },
  { package: "unzip", probe: "unzip" },
];

/** The packages whose probe finds nothing. */
export function missingPackages(
  requirements: readonly Requirement[],
  isThere: (probe: string) => boolean,
): readonly string[] {
  return requirements.filter(({ probe }) => !isThere(probe)).map((one) => one.package);
}

/** Is there such a program on the PATH (or such a file, when it is a path)? */
export function programExists(probe: string): boolean {
  if (probe.startsWith("/")) return existsSync(probe);
  const folders = (commandEnvironment()["PATH"] ?? "").split(delimiter);
  return folders.some((folder) => folder !== "" && existsSync(join(folder, probe)));
}

const NOT_ROOT = `A cluster needs root: network namespaces, mounts and cgroups are made for each node.
Run it as root (sudo -E npm run e2e), on a machine or container that may do so.`;

const NO_GO = `Kubernetes, etcd and CoreDNS are built with Go, and there is no "go" here.
Install it (https://go.dev/dl, or apt-get install golang), 1.21 or newer: it fetches the version that the modules ask for.`;

/** Throws `missing` with what to do when the machine cannot carry the cluster; installs what apt-get can install. */
export async function ensureMachine(say: Say): Promise<void> {
  if (process.platform !== "linux")
    throw new E2eError("missing", `A cluster needs Linux; this is ${process.platform}.`);
  if (process.getuid?.() !== 0) throw new E2eError("missing", NOT_ROOT);
  if (!programExists("go")) throw new E2eError("missing", NO_GO);
  const missing = missingPackages(REQUIREMENTS, programExists);
  if (missing.length === 0) return;
  const list = missing.join(" ");
  if (!programExists("apt-get"))
    throw new E2eError("missing", `Install what Debian calls: ${list}\n(There is no apt-get here to do it.)`);
  const env = { DEBIAN_FRONTEND: "noninteractive" };
  await step(say, `installing Debian packages: ${list}`, async () => {
    await run("apt-get", ["update", "-qq"], { env, timeoutMs: 300_000 });
    await run("apt-get", ["install", "-y", "-qq", "--no-install-recommends", ...missing], {
      env,
      timeoutMs: 900_000,
    });
  });
  const still = missingPackages(REQUIREMENTS, programExists);
  if (still.length > 0)
    throw new E2eError("missing", `apt-get installed ${list}, and still not found: ${still.join(" ")}`);
}
