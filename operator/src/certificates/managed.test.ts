import assert from "node:assert/strict";
import { createHash, X509Certificate } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { describe, it } from "node:test";
import { connect, createServer } from "node:tls";
import type { TLSSocket } from "node:tls";
import type { Secret } from "../api/core.ts";
import type { MemberStatus } from "../cell/types.ts";
import { CELL_SPEC, CELL_UID } from "../resources/testing/objects.ts";
import { certificateHolders } from "./holders.ts";
import type { CertificateHolder } from "./holders.ts";
import { createAuthority, issueLeaf } from "./issue.ts";
import { rotationInput, secretOfStep } from "./managed.ts";
import type { FoundCertificates } from "./managed.ts";
import { bundleHashOf, bundlePem, certificatesOf, fingerprintOf, hasNames } from "./material.ts";
import { planRotation } from "./rotation.ts";
import type { RotationPlan, RotationStep } from "./rotation.ts";
import {
  authoritySecret,
  certManagerCertificate,
  heldCertificate,
  problemOfSecret,
  readAuthoritySecret,
  readLeaf,
  readTrust,
  ROTATE_ANNOTATION,
} from "./secrets.ts";

const HOUR_MS = 3_600_000;
const nowMs = Date.now();
const cell = { name: "orders", namespace: "apps", uid: CELL_UID };

/** Kubernetes' Secrets, and members that load theirs when they are told to. */
class Cluster {
  authority: Secret | undefined;
  readonly secrets = new Map<string, Secret>();
  readonly statuses = new Map<string, MemberStatus>();
  readonly holders: readonly CertificateHolder[];
  nowMs = nowMs;
  #version = 0;

  constructor(members: readonly string[]) {
    this.holders = certificateHolders({ cell, tls: CELL_SPEC.tls, members, operatorNamespace: "lockstep" });
  }

  get found(): FoundCertificates {
    const { authority, holders, secrets, statuses } = this;
    return { authority, holders, secrets, statuses };
  }

  plan(): RotationPlan {
    return planRotation(rotationInput(this.found, { nowMs: this.nowMs, silentOverlapMs: 0 }));
  }

  async perform(step: RotationStep): Promise<void> {
    const secret = await secretOfStep(step, {
      cell,
      found: this.found,
      operatorNamespace: "lockstep",
      leafDurationMs: 24 * HOUR_MS,
      nowMs: this.nowMs,
      ownerOf: () => undefined,
    });
    const before = step.kind === "write" ? this.secrets.get(step.holder) : this.authority;
    assert.equal(secret.metadata.resourceVersion, before?.metadata.resourceVersion);
    const stored = { ...secret, metadata: { ...secret.metadata, resourceVersion: String(++this.#version) } };
    if (step.kind === "write") this.secrets.set(step.holder, stored);
    else this.authority = stored;
  }

  load(member: string): void {
    const secret = this.secrets.get(`member/${member}`)!;
    const [leaf] = certificatesOf(readLeaf(secret)!.certificate);
    this.statuses.set(member, {
      tls: {
        bundleHash: bundleHashOf(readTrust(secret).map(fingerprintOf)),
        leafHash: fingerprintOf(leaf!),
        leafNotAfterMs: 0,
        reloadError: "",
      },
    } as MemberStatus);
  }

  /** Until there is nothing to do but to wait. @returns the kinds of what was done, each run of one kind once */
  async settle(members: readonly string[] = []): Promise<string[]> {
    const kinds: string[] = [];
    for (let round = 0; round < 100; round += 1) {
      const { step } = this.plan();
      if (step === undefined) return kinds;
      await this.perform(step);
      if (kinds.at(-1) !== step.kind) kinds.push(step.kind);
      for (const member of members) if (this.secrets.has(`member/${member}`)) this.load(member);
    }
    throw new Error("it does not come to rest");
  }
}

/** Whether a TLS 1.3 connection, with certificates asked of both sides, comes about; and whom each side saw. */
async function handshake(server: Secret, client: Secret, servername: string): Promise<readonly string[]> {
  const material = (secret: Secret) => {
    const leaf = readLeaf(secret)!;
    return { cert: leaf.certificate, key: leaf.key, ca: bundlePem(readTrust(secret)) };
  };
  const listener = createServer({
    ...material(server),
    minVersion: "TLSv1.3",
    requestCert: true,
    rejectUnauthorized: true,
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const accepted = new Promise<TLSSocket>((resolve, reject) => {
    listener.once("secureConnection", resolve).once("tlsClientError", reject);
  });
  const { port } = listener.address() as AddressInfo;
  const socket = connect({ ...material(client), host: "127.0.0.1", port, servername, minVersion: "TLSv1.3" });
  try {
    const [peer] = await Promise.all([accepted, once(socket, "secureConnect")]);
    return [socket, peer].map((side) => side.getPeerX509Certificate()?.subjectAltName ?? "");
  } finally {
    socket.destroy();
    listener.close();
  }
}

describe("certificates that the operator issues", () => {
  it("bring about TLS 1.3 between members, operator and applications, each known by its identity", async () => {
    const cluster = new Cluster(["orders-a", "orders-b"]);
    assert.deepEqual(await cluster.settle(), ["create-authority", "write"]);
    const host = "orders-a.orders-peers.apps.svc";
    const server = cluster.secrets.get("member/orders-a")!;
    for (const [holder, identity] of [
      ["member/orders-b", `lockstep://${CELL_UID}/member/orders-b`],
      ["admin/operator", `lockstep://${CELL_UID}/admin/operator`],
      ["client/default", `lockstep://${CELL_UID}/client/default`],
    ] as const) {
      const [seenByClient = "", seenByServer = ""] = await handshake(
        server,
        cluster.secrets.get(holder)!,
        host,
      );
      assert.ok(seenByServer.split(", ").includes(`URI:${identity}`), seenByServer);
      assert.match(seenByClient, /URI:lockstep:\/\/[^,]*\/member\/orders-a/);
      assert.equal(seenByClient.match(/URI:/g)?.length, 1);
    }
  });

  it("are trusted by no other cell", async () => {
    const [one, other] = [new Cluster(["orders-a"]), new Cluster(["orders-a"])];
    await one.settle();
    await other.settle();
    const [server, client] = [one, other].map((cluster) => cluster.secrets.get("member/orders-a")!);
    await assert.rejects(handshake(server!, client!, "localhost"), /unable to verify|self-signed|alert/);
  });

  it("stand in Secrets as Kubernetes names them, keys of authorities only beside the operator", async () => {
    const cluster = new Cluster(["orders-a"]);
    await cluster.settle();
    const secret = cluster.secrets.get("member/orders-a")!;
    assert.equal(secret.type, "kubernetes.io/tls");
    assert.deepEqual(Object.keys(secret.data ?? {}).sort(), ["ca.crt", "tls.crt", "tls.key"]);
    assert.equal(secret.metadata.name, "orders-a-tls");
    assert.equal(cluster.authority?.metadata.namespace, "lockstep");
    assert.equal(cluster.authority.metadata.name, `cell-${CELL_UID}-ca`);
    assert.equal(cluster.secrets.get("admin/operator")?.metadata.namespace, "lockstep");
    const authorityKey = cluster.authority.data?.["current.key"];
    assert.ok(authorityKey !== undefined);
    for (const { data } of cluster.secrets.values())
      assert.ok(!Object.values(data ?? {}).includes(authorityKey));
  });

  it("follow a new authority without a moment in which two sides distrust each other", async () => {
    const members = ["orders-a", "orders-b"];
    const cluster = new Cluster(members);
    await cluster.settle(members);
    const before = readAuthoritySecret(cluster.authority!).current.certificates;
    cluster.authority = {
      ...cluster.authority!,
      metadata: { ...cluster.authority!.metadata, annotations: { [ROTATE_ANNOTATION]: "true" } },
    };
    // b is slow: it loads only when there is nothing else to do.
    const steps: string[] = [];
    for (let round = 0; round < 10; round += 1) {
      steps.push(...(await cluster.settle(["orders-a"])));
      const { waiting } = cluster.plan();
      if (waiting === undefined) break;
      assert.match(waiting, /^member\/orders-b has not loaded its certificates yet$/);
      cluster.load("orders-b");
    }
    assert.deepEqual(steps, ["begin", "write", "advance", "write", "advance", "write", "finish"]);
    const after = readAuthoritySecret(cluster.authority);
    assert.equal(after.phase, "steady");
    assert.notEqual(after.current.certificates, before);
    for (const secret of cluster.secrets.values()) {
      assert.deepEqual(readTrust(secret).map(String), certificatesOf(after.current.certificates).map(String));
    }
  });

  it("survive the loss of the authority's Secret", async () => {
    const cluster = new Cluster(["orders-a"]);
    await cluster.settle(["orders-a"]);
    cluster.authority = undefined;
    const steps = await cluster.settle(["orders-a"]);
    assert.deepEqual(steps, ["adopt-authority", "write", "advance", "write", "advance", "write", "finish"]);
  });

  it("are renewed with the same authorities after two thirds of their life", async () => {
    const cluster = new Cluster(["orders-a"]);
    await cluster.settle(["orders-a"]);
    const leafBefore = readLeaf(cluster.secrets.get("member/orders-a")!);
    cluster.nowMs = nowMs + 17 * HOUR_MS;
    const step = cluster.plan().step;
    assert.ok(step?.kind === "write" && step.leaf === "current");
    assert.deepEqual(await cluster.settle(["orders-a"]), ["write"]);
    assert.notDeepEqual(readLeaf(cluster.secrets.get("member/orders-a")!), leafBefore);
  });
});

describe("a certificate", () => {
  it("never outlives its authority", async () => {
    const authority = await createAuthority({ cellUid: CELL_UID, nowMs, durationMs: HOUR_MS });
    const request = { identity: `lockstep://${CELL_UID}/client/default`, dnsNames: [], isServer: false };
    const leaf = await issueLeaf(authority, { ...request, nowMs, durationMs: 100 * HOUR_MS });
    const [ca, own] = [authority, leaf].map(({ certificate }) => new X509Certificate(certificate));
    assert.equal(own!.validToDate.getTime(), ca!.validToDate.getTime());
    await assert.rejects(
      issueLeaf(authority, { ...request, nowMs: nowMs + 2 * HOUR_MS, durationMs: HOUR_MS }),
      /expired on/,
    );
  });

  it("names one identity: another one, a second one or a missing host does not fit", async () => {
    const authority = await createAuthority({ cellUid: CELL_UID, nowMs, durationMs: HOUR_MS });
    const identity = `lockstep://${CELL_UID}/member/orders-a`;
    const request = { identity, dnsNames: ["a.example"], isServer: true, nowMs, durationMs: HOUR_MS };
    const leaf = new X509Certificate((await issueLeaf(authority, request)).certificate);
    assert.equal(hasNames(leaf, { identity, dnsNames: ["a.example"] }), true);
    assert.equal(hasNames(leaf, { identity: `${identity}x`, dnsNames: [] }), false);
    assert.equal(hasNames(leaf, { identity, dnsNames: ["b.example"] }), false);
    assert.equal(leaf.ca, false);
    assert.deepEqual([...leaf.keyUsage].sort(), ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"]);
  });
});

describe("the hash of a bundle", () => {
  it("is that of the fingerprints' bytes, sorted, each once", async () => {
    const authorities = await Promise.all(
      [1, 2, 3].map(() => createAuthority({ cellUid: CELL_UID, nowMs, durationMs: HOUR_MS })),
    );
    const certificates = authorities.map(({ certificate }) => new X509Certificate(certificate));
    const digests = certificates.map(({ raw }) => createHash("sha256").update(raw).digest());
    const wanted = createHash("sha256")
      .update(Buffer.concat(digests.toSorted((a, b) => Buffer.compare(a, b))))
      .digest("hex");
    const fingerprints = certificates.map(fingerprintOf);
    assert.equal(bundleHashOf(fingerprints), wanted);
    assert.equal(bundleHashOf([...fingerprints, ...fingerprints].reverse()), wanted);
    assert.equal(bundlePem(certificates), bundlePem([...certificates, ...certificates].reverse()));
  });
});

describe("the Secret of an authority", () => {
  it("reads back as it was written", () => {
    for (const state of [
      { phase: "steady", current: { certificates: "a", key: "b" }, next: undefined },
      {
        phase: "retiring",
        current: { certificates: "a", key: undefined },
        next: { certificates: "c", key: "d" },
      },
    ] as const) {
      assert.deepEqual(readAuthoritySecret(authoritySecret(cell, "lockstep", state)), state);
    }
  });

  it("is refused when it is not as it was written, with the remedy", () => {
    const secret = authoritySecret(cell, "lockstep", {
      phase: "steady",
      current: { certificates: "a", key: "b" },
      next: undefined,
    });
    for (const data of [
      {},
      { ...secret.data, phase: "c3RyYW5nZQ==" },
      { ...secret.data, "next.crt": "YQ==" },
    ]) {
      assert.throws(() => readAuthoritySecret({ ...secret, data }), /restore it, or delete it/);
    }
  });
});

describe("certificates that others make", () => {
  const tls = {
    mode: "Secret",
    operatorSecretName: "op",
    leafDuration: "2160h",
    clientOverlap: "5m",
  } as const;
  const [holder] = certificateHolders({ cell, tls, members: ["orders-a"], operatorNamespace: "lockstep" });

  it("are asked for by name, with what they must hold", () => {
    assert.match(
      problemOfSecret(undefined, holder!, nowMs) ?? "",
      /^Secret apps\/orders-a-tls does not exist: .*URI lockstep:\/\/[^ ]*\/member\/orders-a .*DNS names orders-a\.orders-peers\.apps\.svc/,
    );
  });

  it("are told what is wrong with them", async () => {
    const cluster = new Cluster(["orders-a", "orders-b"]);
    await cluster.settle();
    const good = cluster.secrets.get("member/orders-a")!;
    const of = (data: Readonly<Record<string, string>>) => ({ ...good, data: { ...good.data, ...data } });
    const other = cluster.secrets.get("member/orders-b")!.data ?? {};
    const stranger = await createAuthority({ cellUid: CELL_UID, nowMs, durationMs: HOUR_MS });
    const base64 = (text: string): string => Buffer.from(text).toString("base64");
    assert.equal(problemOfSecret(good, holder!, nowMs), undefined);
    for (const [secret, at, problem] of [
      [of({ "ca.crt": "" }), nowMs, /has no ca\.crt/],
      [of({ "tls.crt": base64("nothing") }), nowMs, /no tls\.crt and tls\.key that can be read/],
      [of({ "tls.key": other["tls.key"]! }), nowMs, /does not fit/],
      [of({ "tls.crt": other["tls.crt"]!, "tls.key": other["tls.key"]! }), nowMs, /does not fit/],
      [good, nowMs + 25 * HOUR_MS, /expired on/],
      [of({ "ca.crt": base64(stranger.certificate) }), nowMs, /no authority of its ca\.crt signed/],
    ] as const) {
      assert.match(problemOfSecret(secret, holder!, at) ?? "", problem);
    }
    assert.equal(heldCertificate(good, holder!, [])?.signer, undefined);
  });

  it("are ordered from cert-manager with the same names, and renewed at two thirds", () => {
    const issuerRef = { name: "our-ca", kind: "ClusterIssuer", group: "cert-manager.io" } as const;
    const spec = { mode: "CertManager", issuerRef, leafDuration: "2160h", clientOverlap: "5m" } as const;
    const holders = certificateHolders({
      cell,
      tls: spec,
      members: ["orders-a"],
      operatorNamespace: "lockstep",
    });
    const owner = { apiVersion: "v1", kind: "X", name: "x", uid: "x" };
    const [member, operator, client] = holders.map((one) => certManagerCertificate(cell, spec, one, owner));
    assert.deepEqual(member?.spec.uris, [`lockstep://${CELL_UID}/member/orders-a`]);
    assert.equal(member.spec.renewBefore, "720h");
    assert.ok(member.spec.usages.includes("server auth"));
    assert.ok(!client?.spec.usages.includes("server auth"));
    assert.deepEqual(operator?.metadata.namespace, "apps");
    assert.equal(operator.spec.secretName, "orders-operator");
  });
});
