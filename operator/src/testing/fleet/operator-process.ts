import { spawn, spawnSync } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { FleetApi } from "./access.ts";

export interface OperatorOptions {
  readonly api: FleetApi;
  readonly namespace: string;
  /** Where its service account, its log and its built program lie. */
  readonly folder: string;
  /** Runs the TypeScript of this repository, which takes some 30 MB more than what an image holds; else it is built. */
  readonly fromSource: boolean;
  /** Host for probes and metrics, which nobody else listens at. */
  readonly opsHost: string;
  /** Instead of those that its image starts it with. */
  readonly nodeArguments?: readonly string[] | undefined;
}

export interface Usage {
  readonly atMs: number;
  readonly cpuSeconds: number;
  readonly residentBytes: number;
  /** Since it was started. */
  readonly residentBytesMax: number;
}

const OPS_PORT = 8081;
const ROOT = join(import.meta.dirname, "../../../..");
/** Linux tells processor time to programs in hundredths of a second, whatever it counts in. */
const TICKS_PER_SECOND = 100;
/** A machine that has too much else to do costs no Lease; renewals come as often as ever. */
const PATIENCE = ["--lease-duration=120s", "--renew-deadline=90s"];
const OLD_SPACE_MIB_MIN = 256;
const STOP_MS_MAX = 25_000;
const SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";

/** The operator as it runs in a cluster, as a process of its own. */
export class OperatorProcess {
  readonly #child: ChildProcess;
  readonly #url: string;
  readonly logFile: string;

  constructor(options: OperatorOptions) {
    const { api, namespace, folder, opsHost, nodeArguments } = options;
    const image = imageSettings();
    const { NODE_OPTIONS } = process.env;
    mkdirSync(folder, { recursive: true });
    for (const [file, text] of Object.entries({ "ca.crt": api.ca, token: api.token, namespace })) {
      writeFileSync(join(folder, file), text);
    }
    this.logFile = join(folder, "operator.log");
    this.#url = `http://${opsHost}:${String(OPS_PORT)}`;
    this.#child = spawn(
      process.execPath,
      [
        ...(nodeArguments ?? image.nodeArguments),
        ...["--import", preload(folder)],
        options.fromSource ? join(import.meta.dirname, "../../main.ts") : build(join(folder, "app")),
        ...[`--ops=${opsHost}:${String(OPS_PORT)}`, "--default-cell-image=lockstep-cell:fleet"],
        ...PATIENCE,
      ],
      {
        stdio: ["ignore", "pipe", "pipe"],
        env: {
          ...image.environment,
          ...(NODE_OPTIONS === undefined ? {} : { NODE_OPTIONS }),
          PATH: process.env["PATH"],
          NODE_ENV: "production",
          KUBERNETES_SERVICE_HOST: api.host,
          KUBERNETES_SERVICE_PORT: api.port,
        },
      },
    );
    const log = createWriteStream(this.logFile);
    this.#child.stdout?.pipe(log, { end: false });
    this.#child.stderr?.pipe(log, { end: false });
  }

  /** Rejects when the process ends before anybody asked it to. */
  async untilEnd(): Promise<never> {
    const [code] = (await once(this.#child, "exit")) as [number | null];
    throw new Error(`the operator ended with ${String(code)}; its log: ${this.logFile}`);
  }

  /** @throws Error when the process is gone */
  usage(): Usage {
    const folder = `/proc/${String(this.#child.pid)}`;
    const stat = readFileSync(join(folder, "stat"), "utf8");
    // The second field is a name in parentheses, which may hold spaces.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = Number(fields[11]) + Number(fields[12]);
    const status = readFileSync(join(folder, "status"), "utf8");
    const bytes = (name: string): number =>
      Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]) * 1024;
    return {
      atMs: performance.now(),
      cpuSeconds: ticks / TICKS_PER_SECOND,
      residentBytes: bytes("VmRSS"),
      residentBytesMax: bytes("VmHWM"),
    };
  }

  /** Its own metrics: values by name and labels, as Prometheus would read them. */
  async metrics(): Promise<ReadonlyMap<string, number>> {
    const answer = await fetch(`${this.#url}/metrics`);
    const lines = (await answer.text()).split("\n").filter((line) => line !== "" && !line.startsWith("#"));
    return new Map(
      lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ")))]),
    );
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGTERM");
    const late = setTimeout(() => this.#child.kill("SIGKILL"), STOP_MS_MAX);
    await ended;
    clearTimeout(late);
  }
}

/** How the operator's image starts it. */
interface ImageSettings {
  readonly nodeArguments: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

/**
 * Below the chart's memory limit Node collects garbage sooner than on a whole machine: half of the limit is for old
 * objects, and at least 256 MiB. Here no container limits it, so it is told.
 */
function heapArgument(): string {
  const text = readFileSync(join(ROOT, "charts/lockstep/values.yaml"), "utf8");
  const [, limit] = /^ {2}limits:\n {4}memory: (\d+)Mi$/m.exec(text) ?? [];
  if (limit === undefined) throw new Error("the chart's values have no memory limit of the operator");
  return `--max-old-space-size=${String(Math.max(OLD_SPACE_MIB_MIN, Number(limit) / 2))}`;
}

/** @throws Error when the Dockerfile does not tell it any more as it did */
function imageSettings(): ImageSettings {
  const text = readFileSync(join(ROOT, "Dockerfile"), "utf8");
  const stage = text.split(/^FROM /m).find((each) => /^\S+ AS operator$/m.test(each)) ?? "";
  const [, entry] = /^ENTRYPOINT (\[.*\])$/m.exec(stage) ?? [];
  const command = JSON.parse(entry ?? "[]") as readonly string[];
  if (command[0] !== "node") throw new Error("the Dockerfile has no stage `operator` that starts node");
  const pairs = [...stage.matchAll(/^ENV (\w+)=(\S+)$/gm)].map(([, name = "", value = ""]) => [name, value]);
  return {
    nodeArguments: [heapArgument(), ...command.slice(1, -1)],
    environment: Object.fromEntries(pairs) as Record<string, string>,
  };
}

/** The operator looks for its service account where kubelets mount it: here it is led elsewhere, and nothing else is. */
function preload(folder: string): string {
  const program = `
    import files from "node:fs/promises";
    import { syncBuiltinESMExports } from "node:module";
    const { readFile } = files;
    files.readFile = (path, ...rest) =>
      readFile(String(path).replace(${JSON.stringify(SERVICE_ACCOUNT)}, ${JSON.stringify(folder)}), ...rest);
    syncBuiltinESMExports();`;
  return `data:text/javascript,${encodeURIComponent(program)}`;
}

/** @returns the program as the operator's image holds it. */
function build(into: string): string {
  const script = join(ROOT, "scripts/build.ts");
  const { status, stderr } = spawnSync(process.execPath, [script, "--image", "operator", "--into", into], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`the operator cannot be built: ${stderr}`);
  return join(into, "dist/main.js");
}
