import type { Cluster } from "../../replica/testing/cluster.ts";
import { AdminError } from "../admin-error.ts";

const ROUNDS_MAX = 4_000;

/** Lets a cluster's time pass until something is decided. @returns the value, or the code of the refusal. */
export async function decided<T>(cluster: Cluster, wanted: Promise<T>): Promise<T | string> {
  let result: { readonly value: T | string } | undefined;
  void wanted.then(
    (value) => (result = { value }),
    (error: unknown) => (result = { value: error instanceof AdminError ? error.code : String(error) }),
  );
  for (let round = 0; round < ROUNDS_MAX && result === undefined; round += 1) {
    await new Promise((resolve) => setImmediate(resolve));
    cluster.pass(1);
  }
  return result?.value ?? "undecided";
}
