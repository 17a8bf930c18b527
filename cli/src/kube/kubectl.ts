import { spawn } from "node:child_process";
import { CliError, EXIT } from "../exit-codes.ts";

/** Runs kubectl, which brings its own configuration, credentials and plugins. */
export interface Kubectl {
  /** @returns what it printed; rejects with a {@link CliError} that repeats its complaint. */
  run(args: readonly string[], input?: string): Promise<string>;
}

const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;

/** @param common options of every call, e.g. `--context` and `--kubeconfig`. */
export function createKubectl(program: string, common: readonly string[]): Kubectl {
  return { run: (args, input) => runProgram(program, [...common, ...args], input) };
}

function runProgram(program: string, args: readonly string[], input: string | undefined): Promise<string> {
  return new Promise((resolve, reject) => {
    // No shell: names that users type are arguments and nothing else.
    const child = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"] });
    const out: Buffer[] = [];
    let err = "";
    let bytes = 0;
    child.stdout.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > OUTPUT_BYTES_MAX) child.kill();
      else out.push(chunk);
    });
    child.stderr.on("data", (chunk: Buffer) => (err += chunk.toString("utf8").slice(0, 4_096)));
    child.on("error", (error: NodeJS.ErrnoException) =>
      reject(
        error.code === "ENOENT"
          ? new CliError(
              EXIT.failed,
              `there is no ${program} here`,
              "Install kubectl, or name it with --kubectl.",
            )
          : new CliError(EXIT.failed, error.message),
      ),
    );
    child.on("close", (code) => {
      if (code === 0) resolve(Buffer.concat(out).toString("utf8"));
      else reject(complaint(err, bytes));
    });
    // A kubectl that ends early closes its input; its exit code says what there is to say.
    child.stdin.on("error", () => undefined);
    child.stdin.end(input ?? "");
  });
}

function complaint(err: string, bytes: number): CliError {
  if (bytes > OUTPUT_BYTES_MAX) return new CliError(EXIT.failed, "kubectl printed more than 64 MiB");
  const text = err.trim().replace(/^Error from server \((\w+)\): /, "");
  if (/NotFound/.test(err)) return new CliError(EXIT.notFound, text);
  if (/Unable to connect|connection refused|i\/o timeout/.test(err)) {
    return new CliError(EXIT.unavailable, text, "Does `kubectl get nodes` work?");
  }
  if (/the server doesn't have a resource type/.test(err)) {
    return new CliError(
      EXIT.failed,
      text,
      "Is the operator installed in this cluster? See docs/kubernetes.md.",
    );
  }
  return new CliError(EXIT.failed, text === "" ? "kubectl failed without a word" : text);
}
