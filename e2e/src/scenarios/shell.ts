// A pod of the cell's image with a client's certificate, in which the `lockstep` command is run as a person would.
import { E2eError } from "../error.ts";
import type { ScenarioContext } from "../scenario.ts";
import { IDLE, isReady } from "./pods.ts";
import type { PodObject } from "./pods.ts";

const USER = 65532;
const CLIENT_PORT = 7400;
const COMMAND_MS = 60_000;

/** Runs `lockstep` against one cell of the scenario's namespace. */
export class Shell {
  readonly #context: ScenarioContext;
  readonly #pod: string;

  private constructor(context: ScenarioContext, pod: string) {
    this.#context = context;
    this.#pod = pod;
  }

  /** @param nodeName a node that the scenario does not lose. Absent: the scheduler chooses. */
  static async start(context: ScenarioContext, cell: string, nodeName?: string): Promise<Shell> {
    const name = `${cell}-shell`;
    const { image } = (await context.projectImages()).cell;
    await context.apply(shellPod({ name, image, cell, namespace: context.namespace, nodeName }));
    await context.until(`pod ${name} is Ready`, async () =>
      isReady(await context.kubectlJson<PodObject>(["get", "pod", name])),
    );
    return new Shell(context, name);
  }

  /** What the command printed. Throws what it said when it failed. */
  async run(...args: readonly string[]): Promise<string> {
    const { code, output } = await this.attempt(...args);
    if (code !== 0) throw new E2eError("command", `lockstep ${args.join(" ")}: ${output}`);
    return output;
  }

  /** Its exit code, and what it printed to either output. */
  async attempt(...args: readonly string[]): Promise<{ readonly code: number; readonly output: string }> {
    const { cluster, namespace, signal } = this.#context;
    const tls = ["--ca-cert=/tls/ca.crt", "--cert=/tls/tls.crt", "--key=/tls/tls.key"];
    const { code, stdout, stderr } = await cluster.client(
      "kubectl",
      ["exec", this.#pod, `--namespace=${namespace}`, "--", "lockstep", ...tls, ...args],
      { allowedCodes: Array.from({ length: 130 }, (_, each) => each), timeoutMs: COMMAND_MS, signal },
    );
    return { code, output: code === 0 ? stdout.trim() : `${stdout}${stderr}`.trim() };
  }

  /** Takes a lock, gives it back, and returns the fencing token that it came with. */
  async token(lock: string): Promise<number> {
    const program = "console.log('token=' + process.env.LOCKSTEP_FENCING_TOKEN)";
    const output = await this.run("lock", lock, "--ttl=10s", "--", "node", "-e", program);
    const token = Number(/token=0*(\d+)/.exec(output)?.[1]);
    if (!Number.isSafeInteger(token)) throw new E2eError("command", `no token in: ${output}`);
    return token;
  }
}

interface ShellPod {
  readonly name: string;
  readonly image: string;
  readonly cell: string;
  readonly namespace: string;
  readonly nodeName: string | undefined;
}

function shellPod({ name, image, cell, namespace, nodeName }: ShellPod): object {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, labels: { app: name } },
    spec: {
      restartPolicy: "Always",
      terminationGracePeriodSeconds: 2,
      automountServiceAccountToken: false,
      ...(nodeName === undefined ? {} : { nodeSelector: { "kubernetes.io/hostname": nodeName } }),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: USER,
        runAsGroup: USER,
        fsGroup: USER,
        seccompProfile: { type: "RuntimeDefault" },
      },
      containers: [
        {
          name: "shell",
          image,
          imagePullPolicy: "Never",
          command: ["node", "-e", IDLE],
          env: [
            { name: "LOCKSTEP_ENDPOINTS", value: `${cell}-client.${namespace}.svc:${String(CLIENT_PORT)}` },
          ],
          resources: { requests: { cpu: "5m", memory: "64Mi" } },
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"] },
          },
          volumeMounts: [{ name: "tls", mountPath: "/tls", readOnly: true }],
        },
      ],
      volumes: [{ name: "tls", secret: { secretName: `${cell}-client`, defaultMode: 0o440 } }],
    },
  };
}
