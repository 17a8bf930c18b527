// Creates, patches and deletes objects as a patient client does: what was not answered is tried again.
import { setTimeout as delay } from "node:timers/promises";
import type { Answer, ApiClient, ApiObject } from "./api.ts";

const CONCURRENCY = 16;
const ATTEMPTS_MAX = 60;
const PAUSE_MS = 250;

/** What was acknowledged: the resourceVersions that a watch must have seen. */
export interface Acknowledged {
  readonly revisions: number[];
  /** Attempts that ended in an error or a 5xx, and were made again. */
  repeated: number;
}

export const nothingYet = (): Acknowledged => ({ revisions: [], repeated: 0 });

/** A kind of object, and how one of them is made and changed. */
export interface Kind {
  readonly path: string;
  make(name: string): unknown;
  change(round: number): unknown;
}

export const configMaps = (namespace: string): Kind => ({
  path: `/api/v1/namespaces/${namespace}/configmaps`,
  make: (name) => ({ apiVersion: "v1", kind: "ConfigMap", metadata: { name }, data: { round: "0" } }),
  change: (round) => ({ data: { round: String(round) } }),
});

export const leases = (namespace: string): Kind => ({
  path: `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`,
  make: (name) => ({
    apiVersion: "coordination.k8s.io/v1",
    kind: "Lease",
    metadata: { name },
    spec: { holderIdentity: "0", leaseDurationSeconds: 10 },
  }),
  change: (round) => ({ spec: { holderIdentity: String(round) } }),
});

/** @param done tells whether an answer ends the matter; others of 4xx are a fault, the rest is tried again */
async function insist(
  acknowledged: Acknowledged,
  send: () => Promise<Answer>,
  done: (answer: Answer, first: boolean) => boolean,
): Promise<Answer> {
  let last = "";
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt += 1) {
    if (attempt > 0) {
      acknowledged.repeated += 1;
      await delay(PAUSE_MS);
    }
    try {
      const answer = await send();
      if (done(answer, attempt === 0)) return answer;
      last = `${String(answer.status)} ${answer.text.slice(0, 300)}`;
      // A conflict is the patch's own: it lost against nobody but its first attempt.
      if (answer.status >= 400 && answer.status < 500 && answer.status !== 429 && answer.status !== 409)
        break;
    } catch (error) {
      last = String(error);
    }
  }
  throw new Error(`refused, or not answered: ${last}`);
}

const revisionOf = (answer: Answer): number =>
  Number((JSON.parse(answer.text) as ApiObject).metadata.resourceVersion);

export class Load {
  readonly #client: () => ApiClient;
  readonly #kind: Kind;
  readonly acknowledged: Acknowledged = nothingYet();

  constructor(client: () => ApiClient, kind: Kind) {
    this.#client = client;
    this.#kind = kind;
  }

  create(names: readonly string[]): Promise<void> {
    return this.#each(names, async (client, name) => {
      const body = this.#kind.make(name);
      const answer = await insist(
        this.acknowledged,
        () => client.send("POST", this.#kind.path, body),
        // Exists: an earlier attempt of ours got through after all.
        ({ status }, first) => status === 201 || (status === 409 && !first),
      );
      if (answer.status === 201) this.acknowledged.revisions.push(revisionOf(answer));
    });
  }

  patch(names: readonly string[], round: number): Promise<void> {
    return this.#each(names, async (client, name) => {
      const answer = await insist(
        this.acknowledged,
        () =>
          client.send(
            "PATCH",
            `${this.#kind.path}/${name}`,
            this.#kind.change(round),
            "application/merge-patch+json",
          ),
        ({ status }) => status === 200,
      );
      this.acknowledged.revisions.push(revisionOf(answer));
    });
  }

  remove(names: readonly string[]): Promise<void> {
    return this.#each(names, async (client, name) => {
      await insist(
        this.acknowledged,
        () => client.send("DELETE", `${this.#kind.path}/${name}`),
        ({ status }, first) => status === 200 || (status === 404 && !first),
      );
    });
  }

  async #each(
    names: readonly string[],
    act: (client: ApiClient, name: string) => Promise<void>,
  ): Promise<void> {
    const client = this.#client();
    const queue = names.values();
    try {
      await Promise.all(
        Array.from({ length: CONCURRENCY }, async () => {
          for (const name of queue) await act(client, name);
        }),
      );
    } finally {
      client.close();
    }
  }
}
