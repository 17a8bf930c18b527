/** One thread for all clients of a process, begun with the first one that wants it. */
import { MessageChannel, Worker, type MessagePort } from "node:worker_threads";
import type { RelayOptions } from "./protocol.ts";

let worker: Worker | undefined;

/** @returns the port to the new client's channel. */
export function openInThread(options: RelayOptions): MessagePort {
  worker ??= start();
  const { port1, port2 } = new MessageChannel();
  worker.postMessage({ port: port2, options }, [port2]);
  return port1;
}

function start(): Worker {
  // The sources run as they are, and what is published is built: the file beside this one, of the same kind.
  const file = new URL(`worker-main.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`, import.meta.url);
  const started = new Worker(file, { name: "lockstep-client", execArgv: [] });
  // Open ports keep the process alive, as open connections do; the thread by itself does not.
  started.unref();
  const gone = (): void => {
    if (worker === started) worker = undefined;
  };
  // The ports of its clients close with it, and they tell the callers; an error is in the exit's way only.
  started.on("error", (error: Error) => {
    gone();
    process.emitWarning(`the Lockstep client's thread has failed: ${error.message}`);
  });
  started.on("exit", gone);
  return started;
}
