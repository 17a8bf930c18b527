import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { CoordinationCell } from "../api/types.ts";
import type { KubeClient, KubeObject } from "../kube/types.ts";
import type { Answer, DoorRequest } from "./door.ts";
import { tryCell } from "./try-cell.ts";

interface World {
  readonly said: string[];
  readonly made: CoordinationCell[];
  /** Uids of deleted cells. */
  readonly deleted: string[];
  readonly run: () => Promise<void>;
}

interface Faults {
  readonly leftBehind?: boolean;
  readonly neverReady?: boolean;
  readonly nobodyLooks?: boolean;
  /** A lock that does not hold. */
  readonly brokenLock?: boolean;
  readonly resets?: number;
}

/** One apiserver, one operator and one cell, as far as the program sees them. Time passes only while it waits. */
function world(faults: Faults = {}): World {
  const said: string[] = [];
  const made: CoordinationCell[] = [];
  const deleted: string[] = [];
  let nowMs = 0;
  let cell: CoordinationCell | undefined;
  const condition = (type: string, status: "True" | "False", message: string) =>
    ({ type, status, reason: "R", message, lastTransitionTime: "2026-01-01T00:00:00Z" }) as const;
  const put = (uid: string, object: Pick<CoordinationCell, "spec" | "metadata">): void => {
    cell = {
      apiVersion: "lockstep.dev/v1alpha1",
      kind: "CoordinationCell",
      ...object,
      metadata: { ...object.metadata, uid, generation: 1 },
    };
  };
  if (faults.leftBehind === true) {
    put("old", { metadata: { name: "t", namespace: "n" }, spec: {} as CoordinationCell["spec"] });
  }
  const pause = (ms: number): Promise<void> => {
    nowMs += ms;
    if (cell?.metadata.deletionTimestamp !== undefined) cell = undefined;
    else if (cell !== undefined && faults.nobodyLooks !== true) {
      const isReady = faults.neverReady !== true;
      const conditions = [condition("Ready", isReady ? "True" : "False", isReady ? "" : "No node has room.")];
      cell = { ...cell, status: { observedGeneration: 1, conditions } };
    }
    return Promise.resolve();
  };
  const kube: Pick<KubeClient, "get" | "create" | "delete"> = {
    get: <T extends KubeObject>(kind: { readonly kind: string }) => {
      const encoded = (text: string): string => Buffer.from(text).toString("base64");
      const data = { "ca.crt": encoded("CA"), "tls.crt": encoded("CERT"), "tls.key": encoded("KEY") };
      const secret = { apiVersion: "v1", kind: "Secret", metadata: { name: "t-client" }, data };
      return Promise.resolve((kind.kind === "Secret" ? secret : cell) as unknown as T | undefined);
    },
    create: <T extends KubeObject>(_kind: unknown, object: T) => {
      made.push(object as unknown as CoordinationCell);
      put("new", object as unknown as CoordinationCell);
      return Promise.resolve(object);
    },
    delete: (_kind, _ref, { uid }) => {
      deleted.push(uid);
      if (cell !== undefined) {
        cell = { ...cell, metadata: { ...cell.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } };
      }
      return Promise.resolve();
    },
  };
  let revision = 10;
  let holder: string | undefined;
  let resets = faults.resets ?? 0;
  const answer = (status: number, body: unknown): Answer => ({ status, text: JSON.stringify(body) });
  const askDoor = ({ method, path, headers = {} }: DoorRequest): Promise<Answer> => {
    if (resets > 0) {
      resets -= 1;
      return Promise.reject(new Error("connect ECONNREFUSED"));
    }
    revision += 1;
    if (method === "POST") return Promise.resolve(answer(201, { leaseId: `lease_${String(revision)}` }));
    if (method === "DELETE") {
      if (path.endsWith(holder ?? "nobody")) holder = undefined;
      return Promise.resolve(answer(200, { deleted: 1 }));
    }
    if (holder !== undefined && faults.brokenLock !== true)
      return Promise.resolve(answer(412, { version: 1 }));
    holder = headers["lease-id"];
    return Promise.resolve(answer(201, { fencingToken: revision }));
  };
  return {
    said,
    made,
    deleted,
    run: () =>
      tryCell(
        {
          kube,
          openDoor: (host, port, certificate) => {
            said.push(
              `dials ${host}:${String(port)} with ${certificate.ca} ${certificate.cert} ${certificate.key}`,
            );
            return { ask: askDoor };
          },
          monotonicMs: () => nowMs,
          pause,
          say: (line) => said.push(line),
        },
        { namespace: "n", cell: "t", storageSize: "1Gi", timeoutMs: 30_000 },
      ),
  };
}

describe("helm test", () => {
  it("makes a cell, takes the lock twice with growing tokens, and deletes the cell", async () => {
    const { run, said, made, deleted } = world();
    await run();
    assert.deepEqual(made[0]?.spec, { voters: 1, storage: { size: "1Gi", reclaimPolicy: "Delete" } });
    assert.deepEqual(said, [
      "made CoordinationCell n/t",
      "it is Ready",
      "dials t-client.n.svc:7401 with CA CERT KEY",
      "took a lock, fencing token 12",
      "another was refused it",
      "freed it; the next owner has token 16",
      "deleted CoordinationCell n/t",
    ]);
    assert.deepEqual(deleted, ["new"]);
  });

  it("asks again while the Service leads to nobody yet", async () => {
    await world({ resets: 5 }).run();
  });

  it("a cell that an interrupted test left behind goes first", async () => {
    const { run, deleted } = world({ leftBehind: true });
    await run();
    assert.deepEqual(deleted, ["old", "new"]);
  });

  it("a cell that does not get Ready: says what its conditions say, and deletes it all the same", async () => {
    const { run, deleted } = world({ neverReady: true });
    await assert.rejects(run(), /not Ready in time\. Ready: No node has room\./);
    assert.deepEqual(deleted, ["new"]);
  });

  it("an operator that does not look at the cell is named as the likely cause", async () => {
    await assert.rejects(world({ nobodyLooks: true }).run(), /is an operator running/);
  });

  it("a lock that two get fails the test", async () => {
    await assert.rejects(world({ brokenLock: true }).run(), /given to another/);
  });
});
