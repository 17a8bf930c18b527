import "reflect-metadata";
import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { TLSSocket } from "node:tls";
import * as x509 from "@peculiar/x509";
import { createKubeClient } from "./client.ts";
import { inClusterAccess, kubeconfigAccess } from "./cluster.ts";
import type { ClusterAccess } from "./cluster.ts";
import { createHttpTransport } from "./http-transport.ts";
import { createInformer } from "./informer.ts";
import { Rest } from "./rest.ts";
import { REAL_RUNTIME } from "./runtime.ts";
import { FakeApiServer, serveFake } from "./testing/index.ts";
import type { FakeHttp } from "./testing/index.ts";
import { WIDGETS, widget } from "./testing/widgets.ts";
import type { Transport } from "./transport.ts";
import type { KubeClient } from "./types.ts";

interface Pair {
  readonly cert: string;
  readonly key: string;
}

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

async function newKeys(): Promise<{ keys: webcrypto.CryptoKeyPair; key: string }> {
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  const pkcs8 = Buffer.from(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey));
  const lines = pkcs8.toString("base64").replace(/(.{64})/g, "$1\n");
  return { keys, key: `-----BEGIN PRIVATE KEY-----\n${lines}\n-----END PRIVATE KEY-----\n` };
}

/** A CA and what it issues. */
async function newCa(): Promise<{ cert: string; issue: (name: string) => Promise<Pair> }> {
  const { keys } = await newKeys();
  const lasts = { notBefore: new Date(Date.now() - 60_000), notAfter: new Date(Date.now() + 3_600_000) };
  const ca = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: "01",
    name: "CN=test ca",
    ...lasts,
    signingAlgorithm: algorithm,
    keys,
    extensions: [new x509.BasicConstraintsExtension(true, 1, true)],
  });
  let serial = 1;
  return {
    cert: ca.toString("pem"),
    issue: async (name) => {
      const { keys: own, key } = await newKeys();
      serial += 1;
      const leaf = await x509.X509CertificateGenerator.create({
        serialNumber: `0${serial}`,
        subject: `CN=${name}`,
        issuer: ca.subject,
        ...lasts,
        signingAlgorithm: algorithm,
        publicKey: own.publicKey,
        signingKey: keys.privateKey,
        extensions: [new x509.SubjectAlternativeNameExtension([{ type: "dns", value: "localhost" }])],
      });
      return { cert: leaf.toString("pem"), key };
    },
  };
}

function peerOf(request: IncomingMessage): string {
  const { socket } = request;
  assert.ok(socket instanceof TLSSocket);
  return String(socket.getPeerCertificate().subject.CN);
}

describe("the transport over real sockets", () => {
  const fake = new FakeApiServer({ runtime: REAL_RUNTIME, kinds: [{ kind: WIDGETS }] });
  const transports: Transport[] = [];
  let ca: Awaited<ReturnType<typeof newCa>>;
  let http: FakeHttp;
  let folder: string;
  let seen: { authorization: string | undefined; subject: string | undefined; agent: string | undefined }[] =
    [];
  let refuse: ((request: IncomingMessage) => number | undefined) | undefined;

  before(async () => {
    ca = await newCa();
    const server = await ca.issue("localhost");
    folder = await mkdtemp(join(tmpdir(), "kube-"));
    http = await serveFake({
      server: fake,
      tls: { ...server, ca: ca.cert },
      authenticate: (request) => {
        seen.push({
          authorization: request.headers.authorization,
          subject: peerOf(request),
          agent: request.headers["user-agent"],
        });
        return refuse?.(request);
      },
    });
  });

  after(async () => {
    await Promise.all(transports.map((transport) => transport.close()));
    await http.close();
    await rm(folder, { recursive: true });
  });

  function connect(
    access: ClusterAccess,
    options: { credentialsMs?: number; connectionsMax?: number } = {},
  ): {
    transport: Transport;
    client: KubeClient;
    urgent: KubeClient;
    rest: Rest;
  } {
    const transport = createHttpTransport({ access, userAgent: "test/1", ...options });
    transports.push(transport);
    const rest = new Rest({ transport, runtime: REAL_RUNTIME });
    const urgent = new Rest({ transport, runtime: REAL_RUNTIME, lane: "urgent" });
    return {
      transport,
      rest,
      client: createKubeClient({ rest, fieldManager: "test" }),
      urgent: createKubeClient({ rest: urgent, fieldManager: "test" }),
    };
  }

  async function accessOf(name: string): Promise<ClusterAccess> {
    const pair = await ca.issue(name);
    return {
      server: http.url,
      credentials: () => Promise.resolve({ headers: {}, tls: { ca: ca.cert, ...pair } }),
    };
  }

  it("uses few connections for many calls, and answers as the apiserver does", async () => {
    const { client } = connect(await accessOf("operator"));
    const before = http.connections();
    for (let index = 0; index < 50; index += 1) await client.create(WIDGETS, widget(`w${index}`));
    await Promise.all(Array.from({ length: 50 }, () => client.list(WIDGETS)));
    const used = http.connections() - before;
    assert.ok(used >= 1 && used <= 16, `${used} connections`);
    assert.equal(seen.at(-1)?.agent, "test/1");
    await assert.rejects(client.create(WIDGETS, widget("w1")), { reason: "already-exists" });
  });

  it("refuses a server that it does not know, and is refused without a certificate", async () => {
    const stranger: ClusterAccess = {
      server: http.url,
      credentials: async () => ({ headers: {}, tls: { ca: (await newCa()).cert } }),
    };
    await assert.rejects(connect(stranger).client.list(WIDGETS), { reason: "unavailable", status: 0 });
    const nobody: ClusterAccess = {
      server: http.url,
      credentials: () => Promise.resolve({ headers: {}, tls: { ca: ca.cert } }),
    };
    await assert.rejects(connect(nobody).client.list(WIDGETS), { reason: "unavailable", status: 0 });
  });

  it("changes to a renewed client certificate without a failed call", async () => {
    const pairs = [await ca.issue("before"), await ca.issue("after")];
    let current = 0;
    const access: ClusterAccess = {
      server: http.url,
      credentials: () => Promise.resolve({ headers: {}, tls: { ca: ca.cert, ...pairs[current] } }),
    };
    const { client } = connect(access, { credentialsMs: 0 });
    seen = [];
    await client.list(WIDGETS);
    current = 1;
    await Promise.all([client.list(WIDGETS), client.list(WIDGETS)]);
    assert.deepEqual(
      seen.map(({ subject }) => subject),
      ["before", "after", "after"],
    );
  });

  it("calls that hang hold up neither the renewal of a lease nor a watch", async () => {
    const { client, urgent, transport } = connect(await accessOf("operator"), { connectionsMax: 2 });
    const started = Promise.withResolvers<undefined>();
    let hanging = 0;
    fake.fault = (call) => {
      if (call.name !== "hangs") return undefined;
      hanging += 1;
      if (hanging === 2) started.resolve(undefined);
      return { kind: "hang" };
    };
    const stuck = [1, 2, 3].map(() =>
      client.get(WIDGETS, { namespace: "shop", name: "hangs" }).catch((error: unknown) => error),
    );
    await started.promise;
    assert.equal(await urgent.get(WIDGETS, { namespace: "shop", name: "absent" }), undefined);
    const free = new Rest({ transport, runtime: REAL_RUNTIME, lane: "urgent" });
    const informer = createInformer(WIDGETS, { rest: free });
    informer.start();
    await informer.whenSynced();
    const heard = new Promise<void>((resolve) => {
      informer.subscribe(({ object }) => {
        if (object.metadata.name === "told") resolve();
      });
    });
    fake.store.create(WIDGETS, widget("told"), { manager: "test" });
    await heard;
    await informer.stop();
    await transport.close();
    for (const error of await Promise.all(stuck)) assert.match(String(error), /KubeError/);
  });

  it("an informer follows over resets, and leaves no connection after stop", async () => {
    const { rest, client } = connect(await accessOf("operator"));
    const informer = createInformer(WIDGETS, { rest, limits: { backoff: { baseMs: 1, maxMs: 5 } } });
    informer.start();
    await informer.whenSynced();
    for (let index = 0; index < 3; index += 1) {
      const heard = new Promise<void>((resolve) => {
        const end = informer.subscribe(({ object }) => {
          if (object.metadata.name !== `reset-${index}`) return;
          resolve();
          setImmediate(end);
        });
      });
      fake.resetWatches();
      await client.create(WIDGETS, widget(`reset-${index}`));
      await heard;
    }
    await informer.stop();
    while (fake.openWatches > 0) await new Promise((resolve) => setImmediate(resolve));
  });

  it("takes the certificate and the server of a kubeconfig", async () => {
    const pair = await ca.issue("from-kubeconfig");
    const encode = (text: string): string => Buffer.from(text).toString("base64");
    const config = {
      "current-context": "here",
      clusters: [{ name: "c", cluster: { server: http.url, "certificate-authority-data": encode(ca.cert) } }],
      contexts: [{ name: "here", context: { cluster: "c", user: "u", namespace: "shop" } }],
      users: [
        {
          name: "u",
          user: {
            "client-certificate-data": encode(pair.cert),
            "client-key-data": encode(pair.key),
            token: "secret",
          },
        },
      ],
    };
    const path = join(folder, "kubeconfig");
    await writeFile(path, JSON.stringify(config));
    const access = await kubeconfigAccess({ source: { path } });
    assert.equal(access.namespace, "shop");
    seen = [];
    await connect(access).client.list(WIDGETS);
    assert.deepEqual(seen, [{ authorization: "Bearer secret", subject: "from-kubeconfig", agent: "test/1" }]);
    await assert.rejects(kubeconfigAccess({ source: { path }, context: "nowhere" }), /no context "nowhere"/);
  });

  it("reads a pod's token again when it is renewed, and at once after a 401", async () => {
    const write = async (token: string): Promise<void> => {
      await writeFile(join(folder, "token"), `${token}\n`);
      await writeFile(join(folder, "ca.crt"), ca.cert);
      await writeFile(join(folder, "namespace"), "system\n");
    };
    await write("first");
    const access = await inClusterAccess({ host: "localhost", port: new URL(http.url).port, folder });
    assert.deepEqual([access.namespace, access.server], ["system", http.url]);
    const pair = await ca.issue("pod");
    const withCertificate: ClusterAccess = {
      ...access,
      credentials: async () => {
        const { headers, tls } = await access.credentials();
        return { headers, tls: { ...tls, ...pair } };
      },
    };
    const { client } = connect(withCertificate, { credentialsMs: 3_600_000 });
    refuse = (request) => (request.headers.authorization === "Bearer second" ? undefined : 401);
    seen = [];
    await assert.rejects(client.list(WIDGETS), { reason: "forbidden", status: 401 });
    await write("second");
    await client.list(WIDGETS);
    assert.deepEqual(
      seen.map(({ authorization }) => authorization),
      ["Bearer first", "Bearer second"],
    );
    refuse = undefined;
  });
});
