// What `helm test` runs: a cell is made, a lock is taken in it, and it is deleted again.
import { Command } from "commander";
import { durationMs } from "../api/duration.ts";
import { createHttpTransport, createKubeClient, inClusterAccess, REAL_RUNTIME, Rest } from "../kube/index.ts";
import { httpsDoor } from "./door.ts";
import { tryCell } from "./try-cell.ts";

interface Flags {
  readonly namespace: string;
  readonly cell: string;
  readonly storageSize: string;
  readonly storageClass?: string;
  readonly timeout: string;
}

const program = new Command("helm-test")
  .description("Makes a cell, takes a lock in it, and deletes it. Runs in a Pod, with its service account.")
  .requiredOption("--namespace <name>", "Kubernetes namespace of the cell")
  .requiredOption("--cell <name>", "name of the cell; one of the name is deleted first")
  .option("--storage-size <quantity>", "size of the member's volume", "1Gi")
  .option("--storage-class <name>", "StorageClass of the volume (default: the cluster's)")
  .option("--timeout <duration>", "for all of it", "5m")
  .parse();
const flags = program.opts<Flags>();

try {
  const access = await inClusterAccess({
    host: process.env["KUBERNETES_SERVICE_HOST"] ?? "kubernetes.default.svc",
    port: process.env["KUBERNETES_SERVICE_PORT"] ?? "443",
  });
  const transport = createHttpTransport({ access, userAgent: "lockstep-helm-test" });
  const kube = createKubeClient({
    rest: new Rest({ transport, runtime: REAL_RUNTIME }),
    fieldManager: "lockstep-helm-test",
  });
  await tryCell(
    {
      kube,
      openDoor: httpsDoor,
      monotonicMs: () => performance.now(),
      pause: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
      say: (line) => console.log(line),
    },
    {
      namespace: flags.namespace,
      cell: flags.cell,
      storageSize: flags.storageSize,
      ...(flags.storageClass === undefined ? {} : { storageClassName: flags.storageClass }),
      timeoutMs: durationMs(flags.timeout),
    },
  );
  console.log("all is well");
  await transport.close();
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
