// One kube-apiserver on loopback, whose only store is the target of these tests.
import { spawn, type ChildProcess } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import {
  createWriteStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildPrograms } from "../../../../e2e/src/programs.ts";
import { freePortBlock } from "../../../support/ports.ts";
import { until } from "../../../support/until.ts";
import { layout } from "../tools.ts";
import { ApiClient } from "./api.ts";

const READY_MS_MAX = 120_000;

export class ApiServer {
  readonly #command: string;
  readonly #directory = mkdtempSync(join(tmpdir(), "lockstep-apiserver-"));
  readonly #token = randomBytes(16).toString("hex");
  readonly #port: number;
  readonly #endpoints: readonly string[];
  #child: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();

  private constructor(command: string, port: number, endpoints: readonly string[]) {
    this.#command = command;
    this.#port = port;
    this.#endpoints = endpoints;
  }

  /** @param endpoints host:port of each member of the store; `say` hears of a build, which takes minutes once */
  static async start(endpoints: readonly string[], say: (line: string) => void): Promise<ApiServer> {
    const { kubernetes } = await buildPrograms(say, layout);
    const server = new ApiServer(join(kubernetes, "kube-apiserver"), await freePortBlock(1), endpoints);
    server.#writeFiles();
    try {
      await server.start();
      return server;
    } catch (error) {
      await server.stop();
      throw error;
    }
  }

  #file(name: string): string {
    return join(this.#directory, name);
  }

  #writeFiles(): void {
    mkdirSync(this.#file("certs"));
    const pair = generateKeyPairSync("rsa", {
      modulusLength: 2048,
      publicKeyEncoding: { type: "spki", format: "pem" },
      privateKeyEncoding: { type: "pkcs8", format: "pem" },
    });
    writeFileSync(this.#file("sa.key"), pair.privateKey);
    writeFileSync(this.#file("sa.pub"), pair.publicKey);
    writeFileSync(this.#file("tokens.csv"), `${this.#token},admin,admin,system:masters\n`);
  }

  #arguments(): readonly string[] {
    return [
      `--etcd-servers=${this.#endpoints.map((endpoint) => `http://${endpoint}`).join(",")}`,
      `--secure-port=${String(this.#port)}`,
      "--bind-address=127.0.0.1",
      `--cert-dir=${this.#file("certs")}`,
      `--token-auth-file=${this.#file("tokens.csv")}`,
      `--service-account-key-file=${this.#file("sa.pub")}`,
      `--service-account-signing-key-file=${this.#file("sa.key")}`,
      "--service-account-issuer=https://kubernetes.default.svc",
      "--service-cluster-ip-range=10.112.0.0/16",
      "--authorization-mode=AlwaysAllow",
      "--anonymous-auth=false",
      // There is nobody who would make the service accounts that it asks for.
      "--disable-admission-plugins=ServiceAccount",
      // One client with many requests at once is what these tests are; it is not to be slowed down.
      "--enable-priority-and-fairness=false",
      "--profiling=false",
    ];
  }

  /** Starts it (again) and returns when it is ready. */
  async start(): Promise<void> {
    const child = spawn(this.#command, this.#arguments(), { stdio: ["ignore", "pipe", "pipe"] });
    const log = createWriteStream(this.#file("log"), { flags: "a" });
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    this.#child = child;
    this.#exited = new Promise((resolve) => {
      child.once("close", () => {
        if (this.#child === child) this.#child = undefined;
        log.end();
        resolve();
      });
    });
    await until(
      "the apiserver is ready",
      async () => {
        if (this.#child === undefined) throw new Error(this.log());
        if (!existsSync(this.#file("certs/apiserver.crt"))) return undefined;
        const client = this.client();
        try {
          return (await client.text("/readyz")) === "ok" || undefined;
        } finally {
          client.close();
        }
      },
      READY_MS_MAX,
    );
  }

  /** A client of its own, to be closed. */
  client(): ApiClient {
    const ca = readFileSync(this.#file("certs/apiserver.crt"), "utf8");
    return new ApiClient({ port: this.#port, token: this.#token, ca });
  }

  /** The end of what it said. */
  log(): string {
    return readFileSync(this.#file("log"), "utf8").trimEnd().split("\n").slice(-20).join("\n");
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    this.#child?.kill(signal);
    await this.#exited;
  }

  /** Ends it and removes its files, unless LOCKSTEP_KEEP is set. */
  async stop(): Promise<void> {
    await this.end("SIGKILL");
    if (process.env["LOCKSTEP_KEEP"] === undefined) rmSync(this.#directory, { recursive: true, force: true });
  }
}
