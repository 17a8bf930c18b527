import type { Client } from "@lockstep/client";
import { outputOf, txnOf } from "../../linearizability/observe.ts";
import type { KeyInput, KeyOutput } from "../../linearizability/words.ts";

/** Runs one operation of the checker's vocabulary through the client library. */
export async function execute(client: Client, input: KeyInput, deadlineMs: number): Promise<KeyOutput> {
  switch (input.kind) {
    case "get":
      return outputOf(await client.range(input.key, { deadlineMs }));
    case "put":
      return outputOf(await client.put(input.key, input.value, { deadlineMs }));
    case "delete":
      return outputOf(await client.delete(input.key, { deadlineMs }));
    case "txn":
      return outputOf(await client.txn(txnOf(input), { deadlineMs }));
  }
}
