/** A member in a thread of its own, for tests that keep their own thread busy. */
import { parentPort, Worker, workerData } from "node:worker_threads";
import type * as coordination from "@lockstep/proto/coordination";
import { FakeMember } from "./fake-cell.ts";

type Command =
  | { readonly kind: "puts"; readonly count: number; readonly bytes: number }
  | { readonly kind: "break-streams" }
  | { readonly kind: "renewals" }
  | { readonly kind: "watches" }
  | { readonly kind: "stop-renewals" };

export class ThreadedMember implements AsyncDisposable {
  readonly address: string;
  readonly #worker: Worker;

  private constructor(worker: Worker, address: string) {
    this.#worker = worker;
    this.address = address;
  }

  static async start(): Promise<ThreadedMember> {
    const worker = new Worker(new URL(import.meta.url), { execArgv: [], workerData: "fake-member" });
    const address = await answerOf<string>(worker);
    return new ThreadedMember(worker, address);
  }

  /** Writes `/load/00000` and so on, one revision each. Does not wait. */
  puts(count: number, bytes: number): void {
    this.#worker.postMessage({ kind: "puts", count, bytes } satisfies Command);
  }

  /** Frames that renewed leases so far. */
  renewals(): Promise<number> {
    return this.#ask<number>({ kind: "renewals" });
  }

  /** Open watches. */
  watches(): Promise<number> {
    return this.#ask<number>({ kind: "watches" });
  }

  /** From now on none is answered. */
  stopRenewals(): Promise<boolean> {
    return this.#ask<boolean>({ kind: "stop-renewals" });
  }

  breakStreams(): Promise<boolean> {
    return this.#ask<boolean>({ kind: "break-streams" });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker.terminate();
  }

  #ask<Answer>(command: Command): Promise<Answer> {
    const answer = answerOf<Answer>(this.#worker);
    this.#worker.postMessage(command);
    return answer;
  }
}

function answerOf<Answer>(worker: Worker): Promise<Answer> {
  return new Promise((resolve, reject) => {
    worker.once("error", reject);
    worker.once("message", (answer: Answer) => {
      worker.off("error", reject);
      resolve(answer);
    });
  });
}

const ANONYMOUS = {
  ...{ id: 0, clientId: 0, sequence: 0, acknowledgedBelow: 0, deadlineMs: 0 },
  operation: Buffer.alloc(0),
};

async function serve(): Promise<void> {
  const member = await FakeMember.start();
  parentPort?.on("message", (command: Command) => {
    switch (command.kind) {
      case "puts":
        for (let n = 0; n < command.count; n += 1) {
          const operation = put(`/load/${String(n).padStart(5, "0")}`, Buffer.alloc(command.bytes, n));
          member.store.request(ANONYMOUS, operation);
        }
        return;
      case "break-streams":
        member.breakStreams();
        parentPort?.postMessage(true);
        return;
      case "stop-renewals":
        member.acknowledgesRenewals = false;
        parentPort?.postMessage(true);
        return;
      case "watches":
        parentPort?.postMessage(member.watchCount());
        return;
      case "renewals":
        parentPort?.postMessage(member.frames.filter((frame) => frame.renew !== undefined).length);
    }
  });
  parentPort?.postMessage(member.address);
}

function put(key: string, value: Buffer): coordination.Operation {
  const operation = { key: Buffer.from(key), value, leaseId: "0", sequential: false, returnPrevious: false };
  return { operation: { $case: "put", value: operation } };
}

if (workerData === "fake-member") await serve();
