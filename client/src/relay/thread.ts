/** One thread for all clients of a process, begun with the first one that wants it. */
import { MessageChannel, Worker, type MessagePort } from "node:worker_threads";
import { LockstepError } from "../errors.ts";
import type { RelayOptions } from "./protocol.ts";

interface Thread {
  readonly worker: Worker;
  /** Its program has been loaded and listens. */
  readonly loaded: Promise<void>;
}

let thread: Thread | undefined;

/**
 * Resolves with the port to the new client's channel, once the thread is there.
 * @throws LockstepError `unavailable` when it cannot begin
 */
export async function openInThread(options: RelayOptions): Promise<MessagePort> {
  const { port1, port2 } = new MessageChannel();
  try {
    thread ??= start();
    const { worker, loaded } = thread;
    worker.postMessage({ port: port2, options }, [port2]);
    await loaded;
  } catch (error) {
    port1.close();
    const why = error instanceof Error ? error.message : String(error);
    throw new LockstepError(
      "unavailable",
      "not-applied",
      `the client's thread cannot begin (${why}). In a program that is bundled, leave @lockstep/client out of the bundle, or connect with \`worker: false\``,
      { cause: error },
    );
  }
  return port1;
}

function start(): Thread {
  // The sources run as they are, and what is published is built: the file beside this one, of the same kind.
  const file = new URL(`worker-main.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`, import.meta.url);
  // A preload of the program's would run again here, and one that connects would begin a thread of its own from here.
  const env = { ...process.env, NODE_OPTIONS: "" };
  const worker = new Worker(file, { name: "lockstep-client", execArgv: [], env });
  const loaded: PromiseWithResolvers<void> = Promise.withResolvers();
  worker.once("message", () => {
    // Open ports keep the process alive, as open connections do; the thread by itself does not.
    worker.unref();
    loaded.resolve();
  });
  const gone = (): void => {
    if (thread?.worker === worker) thread = undefined;
    loaded.reject(new Error("the thread has ended"));
  };
  // The ports of its clients close with it, and they tell the callers; whoever waits for it is told here.
  worker.on("error", (error: Error) => {
    loaded.reject(error);
    gone();
    process.emitWarning(`the Lockstep client's thread has failed: ${error.message}`);
  });
  worker.on("exit", gone);
  // Whoever waits for it hears of it.
  loaded.promise.catch(() => undefined);
  return { worker, loaded: loaded.promise };
}
