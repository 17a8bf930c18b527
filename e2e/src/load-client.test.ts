import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { E2eError } from "./error.ts";
import { LoadClient, loadPod, type LoadCluster, type LoadReport, type Verification } from "./load-client.ts";
import { Load } from "./load/load.ts";
import { FakeStore } from "./load/testing/fake-store.ts";

const OPTIONS = { namespace: "orders", cell: "main", image: "load:dev" };
const PROXY = "/api/v1/namespaces/orders/pods/main-load:8080/proxy";

/** The report of a load that was never started, with some fields changed. */
function reportOf(changed: Partial<LoadReport> = {}): LoadReport {
  const store = new FakeStore("/load/one/");
  const options = { instance: "one", writers: 1, keysPerWriter: 1, writesPerSecond: 1, lockers: 1 };
  const timing = { now: () => 0, wallNow: () => 0, delay: () => Promise.resolve(), random: () => 0 };
  const stores = { writes: store, locks: store, watch: store };
  const report = new Load(stores, { ...options, locksPerSecond: 1, watchRenewMs: 1000 }, timing).report();
  return { ...report, total: { ...report.total, acknowledged: 9 }, ...changed };
}

class FakeCluster implements LoadCluster {
  readonly calls: string[] = [];
  report: LoadReport = reportOf();
  verification: Verification = { complete: true, reason: "", keys: 3, past: 2 };
  readonly api: LoadCluster["api"] = {
    get: <T>(path: string) => {
      this.calls.push(`GET ${path}`);
      return Promise.resolve(this.report as T);
    },
    create: (path: string) => {
      this.calls.push(`POST ${path}`);
      return Promise.resolve();
    },
  };

  kubectl(args: readonly string[]): Promise<string> {
    this.calls.push(args.join(" "));
    return Promise.resolve(JSON.stringify({ verification: this.verification, report: this.report }));
  }
}

describe("the load's pod", () => {
  it("is what the restricted profile admits, sees a renewed Secret, and is never started anew", () => {
    const { spec } = loadPod({ ...OPTIONS, nodeName: "node-1", writesPerSecond: 20 }) as {
      readonly spec: {
        readonly restartPolicy: string;
        readonly nodeSelector: object;
        readonly securityContext: object;
        readonly containers: readonly {
          readonly args: readonly string[];
          readonly securityContext: object;
          readonly volumeMounts: readonly object[];
        }[];
        readonly volumes: readonly object[];
      };
    };
    const [container] = spec.containers;
    assert.equal(spec.restartPolicy, "Never");
    assert.deepEqual(spec.nodeSelector, { "kubernetes.io/hostname": "node-1" });
    assert.deepEqual(container?.args, [
      "--endpoints=main-client.orders.svc:7400",
      "--tls=/tls",
      "--listen=0.0.0.0:8080",
      "--writes=20",
    ]);
    assert.deepEqual(container.volumeMounts, [{ name: "tls", mountPath: "/tls", readOnly: true }]);
    assert.deepEqual(spec.volumes, [
      { name: "tls", secret: { secretName: "main-client", defaultMode: 0o440 } },
    ]);
    assert.deepEqual(container.securityContext, {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    });
  });
});

describe("asking the load", () => {
  it("goes through the apiserver to the pod's port", async () => {
    const cluster = new FakeCluster();
    const load = await LoadClient.start(cluster, OPTIONS);
    cluster.calls.length = 0;
    await load.mark("drain node-2");
    await load.verify();
    await load.stop();
    assert.deepEqual(cluster.calls, [
      `POST ${PROXY}/mark?name=drain%20node-2`,
      `--namespace=orders get --raw ${PROXY}/verify`,
      "--namespace=orders delete pod main-load --ignore-not-found --timeout=60s",
    ]);
  });

  it("a verification with violations throws them, each with its sentence", async () => {
    const cluster = new FakeCluster();
    const load = await LoadClient.start(cluster, OPTIONS);
    const kept = [{ kind: "lost-write", at: "1970-01-01T00:00:00.000Z", details: "a = 1 is gone" }] as const;
    cluster.report = reportOf({ violations: { count: 2, kept } });
    await assert.rejects(
      load.verify(),
      /2 violations:\n {2}lost-write at 1970.*a = 1 is gone\n {2}and 1 more/,
    );
  });

  it("a verification that could not look at everything throws why", async () => {
    const cluster = new FakeCluster();
    const load = await LoadClient.start(cluster, OPTIONS);
    cluster.verification = { complete: false, reason: "no write was acknowledged", keys: 0, past: 0 };
    await assert.rejects(load.verify(), /could not look at everything: no write was acknowledged/);
  });

  it("a load that was started anew is no witness", async () => {
    const cluster = new FakeCluster();
    const load = await LoadClient.start(cluster, OPTIONS);
    cluster.report = reportOf({ instance: "two" });
    const isState = (error: unknown): boolean => error instanceof E2eError && error.code === "state";
    await assert.rejects(load.report(), isState);
    await assert.rejects(load.verify(), isState);
  });
});
