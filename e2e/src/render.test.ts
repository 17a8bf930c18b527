import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { componentSpec, COMPONENTS } from "./control-plane.ts";
import {
  BRIDGE,
  SLOTS,
  layoutOf,
  linkOf,
  nodeAddressOf,
  nodeFoldersOf,
  nodeNameOf,
  parseNodeName,
  podNetworkOf,
  zoneOf,
} from "./layout.ts";
import { hostCommands, nodeCommands } from "./network.ts";
import { kubernetesLinkerFlags, requiredVersion } from "./programs.ts";
import {
  renderCni,
  renderContainerd,
  renderCorefile,
  renderKubeconfig,
  renderKubelet,
  renderKubeProxy,
  renderStorageClass,
} from "./render.ts";

const layout = layoutOf({ HOME: "/home/me" }, "/repository");

describe("layoutOf", () => {
  it("takes folders from the environment, and its own where there is nothing or an empty word", () => {
    assert.equal(layout.cache, "/home/me/.cache/lockstep-e2e");
    const other = layoutOf({ XDG_CACHE_HOME: "/c", LOCKSTEP_E2E_STATE: "/s", LOCKSTEP_E2E_RUN: "" }, "/r");
    assert.deepEqual(other, {
      repository: "/r",
      cache: "/c/lockstep-e2e",
      state: "/s",
      run: "/run/lockstep-e2e",
    });
  });

  it("spreads five nodes over three zones as 2+2+1", () => {
    assert.deepEqual(SLOTS.map(zoneOf), ["zone-1", "zone-2", "zone-3", "zone-1", "zone-2"]);
  });

  it("keeps the names of links within what the kernel allows, and sockets within a socket's path", () => {
    for (const name of [BRIDGE, ...SLOTS.map(linkOf)]) assert.ok(name.length <= 15, name);
    for (const slot of SLOTS) assert.ok(nodeFoldersOf(layout, slot).containerdSocket.length < 90);
  });

  it("reads back the names that it gives to nodes, and no others", () => {
    for (const slot of SLOTS)
      for (const generation of [1, 2, 12])
        assert.deepEqual(parseNodeName(nodeNameOf(slot, generation)), { slot, generation });
    for (const name of ["node-0", "node-6", "node-", "node-1-", "other", "node-1-2-3"])
      assert.equal(parseNodeName(name), undefined, name);
  });
});

describe("configuration", () => {
  const objects = (text: string): Record<string, unknown> => JSON.parse(text) as Record<string, unknown>;

  it("gives nodes folders, cgroups and networks of their own", () => {
    const texts = SLOTS.map((slot) => {
      const folders = nodeFoldersOf(layout, slot);
      const files = { authorityFile: "ca", certificateFile: "crt", keyFile: "key" };
      return [
        renderContainerd(folders),
        renderCni(slot, folders),
        renderKubelet({ slot, folders, ...files }),
      ];
    });
    for (const [index, own] of texts.entries())
      for (const text of own)
        for (const slot of SLOTS.filter((other) => other !== index + 1)) {
          const { root, run } = nodeFoldersOf(layout, slot);
          for (const foreign of [root, run, podNetworkOf(slot)]) assert.ok(!text.includes(foreign));
        }
  });

  it("routes to every other node's pods and not to one's own", () => {
    assert.deepEqual(
      nodeCommands(2, [1, 2, 3]).filter((line) => line.startsWith("route add 10.")),
      [1, 3].map((slot) => `route add ${podNetworkOf(slot)} via ${nodeAddressOf(slot)}`),
    );
    assert.equal(hostCommands(SLOTS).filter((line) => line.startsWith("netns add")).length, SLOTS.length);
  });

  it("writes JSON where YAML is read", () => {
    assert.equal(objects(renderKubeProxy("node-1", "/k"))["hostnameOverride"], "node-1");
    assert.equal(objects(renderStorageClass())["volumeBindingMode"], "WaitForFirstConsumer");
    const kubeconfig = renderKubeconfig({ authority: "A", certificate: "C", key: "K" });
    assert.ok(kubeconfig.includes(Buffer.from("K").toString("base64")));
    assert.equal(objects(kubeconfig)["current-context"], "lockstep-e2e");
    assert.match(renderCorefile("/k"), /kubeconfig \/k lockstep-e2e/);
  });

  it("starts every component of the control plane with its own log", () => {
    const programs = { kubernetes: "/k", etcd: "/e", coredns: "/c", pause: "/p", clients: "/t" };
    const specs = COMPONENTS.map((component) => componentSpec(component, layout, programs));
    assert.equal(new Set(specs.map(({ logFile }) => logFile)).size, COMPONENTS.length);
    assert.equal(specs[1]?.command, "/k/kube-apiserver");
    assert.ok(specs[2]?.args.includes("--node-monitor-grace-period=20s"));
  });
});

describe("versions", () => {
  it("finds a module's version among single and grouped requirements", () => {
    const goMod = "module x\n\nrequire a.example/b v1.2.3\n\nrequire (\n\tk8s.io/kubernetes v1.34.4\n)\n";
    assert.equal(requiredVersion(goMod, "k8s.io/kubernetes"), "v1.34.4");
    assert.equal(requiredVersion(goMod, "a.example/b"), "v1.2.3");
    assert.throws(() => requiredVersion(goMod, "k8s.io"), /does not require/);
  });

  it("tells Kubernetes its version through the linker", () => {
    const flags = kubernetesLinkerFlags("v1.34.4");
    for (const part of ["gitVersion=v1.34.4", "gitMajor=1", "gitMinor=34"])
      assert.ok(flags.includes(part), part);
  });
});
