import assert from "node:assert/strict";
import { X509Certificate, createHash } from "node:crypto";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { after, before, describe, it } from "node:test";
import { connect as connectTls } from "node:tls";
import type { ServiceError } from "@grpc/grpc-js";
import { credentials, status } from "@grpc/grpc-js";
import { connect } from "@lockstep/client";
import type { Client, FrameLink, FrameSink, Transport } from "@lockstep/client";
import { GrpcTransport } from "@lockstep/client/transport";
import { decodeWelcome, encodeHello } from "../../cell/src/transport/handshake.ts";
import type { MemberId } from "../../cell/src/raft/types.ts";
import { AdminApi } from "../support/admin.ts";
import type { MemberProcess } from "../support/cell.ts";
import { TestAuthority, issueFor } from "../support/certificates.ts";
import type { TestCertificate } from "../support/certificates.ts";
import { run } from "../support/run.ts";
import { SecureCell } from "../support/secure-cell.ts";
import { until } from "../support/until.ts";
import { Writers, assertAllThere } from "../support/writers.ts";

const LOCKSTEP = new URL("../../cli/bin/lockstep.mjs", import.meta.url).pathname;
const FRAME_HEAD_BYTES = 8;

/** Counts a client's streams, so that one that was dropped and replaced does not go unnoticed. */
class CountingTransport implements Transport {
  opened = 0;
  /** Why streams ended that the client had not given up itself. */
  readonly dropped: string[] = [];
  readonly #inner: GrpcTransport;

  constructor(inner: GrpcTransport) {
    this.#inner = inner;
  }

  open(address: string, sink: FrameSink): FrameLink {
    this.opened += 1;
    return this.#inner.open(address, {
      frame: (frame) => sink.frame(frame),
      drained: () => sink.drained(),
      closed: (reason) => {
        this.dropped.push(reason?.message ?? "without a reason");
        sink.closed(reason);
      },
    });
  }

  close(): void {
    this.#inner.close();
  }
}

function sha256(bytes: Uint8Array): Buffer {
  return createHash("sha256").update(bytes).digest();
}

/** As docs/security.md says it, written down once more. */
function bundleHashOf(...authorities: readonly TestAuthority[]): string {
  const prints = authorities
    .map(({ cert }) => sha256(new X509Certificate(cert).raw))
    .sort((a, b) => a.compare(b));
  return sha256(Buffer.concat(prints)).toString("hex");
}

/** What somebody with this certificate gets from one port of a member; an error: no answer at all. */
class Visitor {
  readonly #member: MemberProcess;
  readonly #certificate: TestCertificate | undefined;
  readonly #ca: string;

  constructor(member: MemberProcess, ca: string, certificate?: TestCertificate) {
    this.#member = member;
    this.#ca = ca;
    this.#certificate = certificate;
  }

  get #tls(): { ca: Buffer; cert?: Buffer; key?: Buffer } {
    const { cert, key } = this.#certificate ?? {};
    return {
      ca: Buffer.from(this.#ca),
      ...(cert === undefined || key === undefined ? {} : { cert: Buffer.from(cert), key: Buffer.from(key) }),
    };
  }

  async http(): Promise<number> {
    const url = `https://${this.#member.address(1)}/v1/info`;
    const sent = request(url, { agent: false, ...this.#tls });
    sent.end();
    const [response] = (await once(sent, "response")) as [IncomingMessage];
    response.resume();
    return response.statusCode ?? 0;
  }

  client(): Promise<Client> {
    return connect({ endpoints: [this.#member.address(0)], tls: this.#tls, connectTimeoutMs: 1_500 });
  }

  /** Whether a channel of the client port greets; else why not. */
  async grpc(): Promise<string> {
    try {
      (await this.client()).close();
      return "greeted";
    } catch (error) {
      return (error as Error).message;
    }
  }

  admin(): AdminApi {
    const { ca, cert, key } = this.#tls;
    return new AdminApi(this.#member.address(3), credentials.createSsl(ca, key, cert));
  }

  async adminCode(call: (api: AdminApi) => Promise<unknown>): Promise<number> {
    const api = this.admin();
    try {
      await call(api);
      return status.OK;
    } catch (error) {
      return (error as ServiceError).code;
    } finally {
      api.close();
    }
  }

  /** What the peer port answers to a hello, or `closed`. */
  async peer(hello: {
    cellId: string;
    memberId: MemberId;
    incarnation: string;
    to: MemberId;
  }): Promise<string> {
    const [host, port] = this.#member.address(2).split(":");
    const socket = connectTls({ host, port: Number(port), ...this.#tls });
    socket.once("secureConnect", () => {
      for (const part of encodeHello(hello, hello.to, "raft").parts) socket.write(part);
    });
    return new Promise((resolve) => {
      socket.on("error", () => resolve("closed"));
      socket.on("close", () => resolve("closed"));
      socket.on("data", (bytes: Buffer) => {
        const welcome = decodeWelcome(bytes.subarray(FRAME_HEAD_BYTES + 1));
        resolve(welcome.ok ? "welcome" : welcome.reason);
        socket.destroy();
      });
    });
  }
}

describe("three members with TLS on every port", () => {
  const first = new TestAuthority("first authority");
  const second = new TestAuthority("second authority");
  let secure: SecureCell;
  before(async () => {
    secure = await SecureCell.start(first);
  });
  after(() => (secure as SecureCell | undefined)?.stop());

  function leafHashOf(name: string): string {
    return sha256(new X509Certificate(secure.leaf(`member/${name}`).cert).raw).toString("hex");
  }

  it("a port opens to whom it is for, and to nobody else", async () => {
    const { cell } = secure;
    const leader = await cell.leader();
    const listed = await leader.adminApi.members();
    const other = cell.members.find((member) => member !== leader)!;
    const own = listed.members.find(({ name }) => name === leader.name)!;
    const peer = listed.members.find(({ name }) => name === other.name)!;
    const hello = {
      cellId: listed.cellId,
      memberId: peer.id as MemberId,
      incarnation: peer.incarnation,
      to: own.id as MemberId,
    };
    const visitor = (certificate?: TestCertificate): Visitor =>
      new Visitor(leader, secure.bundle, certificate);

    for (const stranger of [
      visitor(),
      visitor(issueFor(second, "admin/administrator")),
      visitor(issueFor(second, `member/${other.name}`)),
    ]) {
      await assert.rejects(stranger.http());
      assert.match(await stranger.grpc(), /no member/);
      assert.equal(await stranger.adminCode((api) => api.status()), status.UNAVAILABLE);
      assert.equal(await stranger.peer(hello), "closed");
    }

    const neighbours = visitor(issueFor(first, `member/${other.name}`, { cellUid: "another-cell" }));
    assert.equal(await neighbours.http(), 403);
    assert.match(await neighbours.grpc(), /belongs to cell another-cell/);
    assert.equal(await neighbours.adminCode((api) => api.status()), status.PERMISSION_DENIED);
    assert.equal(await neighbours.peer(hello), "wrong-certificate");

    const application = visitor(issueFor(first, "client/application"));
    assert.equal(await application.http(), 200);
    assert.equal(await application.grpc(), "greeted");
    assert.equal(await application.adminCode((api) => api.status()), status.PERMISSION_DENIED);
    assert.equal(await application.peer(hello), "wrong-certificate");

    const administrator = visitor(issueFor(first, "admin/somebody"));
    assert.equal(await administrator.grpc(), "greeted");
    assert.equal(await administrator.adminCode((api) => api.members()), status.OK);
    assert.equal(await administrator.adminCode((api) => api.transfer(own.id)), status.OK);
    assert.equal(await administrator.peer(hello), "wrong-certificate");

    const member = visitor(issueFor(first, `member/${other.name}`));
    assert.equal(await member.grpc(), "greeted");
    assert.equal(await member.adminCode((api) => api.members()), status.OK);
    assert.equal(await member.adminCode((api) => api.transfer(own.id)), status.PERMISSION_DENIED);
    assert.equal(
      await member.adminCode((api) =>
        api.addLearner({ ...learner(peer), name: "m9", plannedOn: 0, cellId: "" }),
      ),
      status.PERMISSION_DENIED,
    );
    assert.equal(await member.peer({ ...hello, incarnation: own.incarnation }), "wrong-incarnation");
    const third = cell.members.find(({ name }) => name !== leader.name && name !== other.name)!;
    const impostor = visitor(issueFor(first, `member/${third.name}`));
    assert.equal(await impostor.peer(hello), "wrong-certificate");

    assert.match(leader.log(), /a peer's certificate is not taken/);
    assert.match(leader.log(), /belongs to cell another-cell/);
    // Probes and metrics stay plain, and tell no secret.
    const metrics = await (await fetch(`http://${leader.address(4)}/metrics`)).text();
    assert.match(metrics, /^lockstep_certificate_expiry_seconds 1?\d{9,}/m);
  });

  it("the command works over TLS: status, member list, a lock around a command", async () => {
    const { cell, application, administrator } = secure;
    const ports = (port: number): string => cell.members.map((member) => member.address(port)).join(",");
    const lockstep = async (mount: typeof application, ...args: string[]): Promise<string> => {
      const flags = ["--ca-cert", mount.ca, "--cert", mount.cert, "--key", mount.key];
      const addresses = ["--endpoints", ports(0), "--admin-endpoints", ports(3)];
      const { code, out, err } = await run(process.execPath, [LOCKSTEP, ...flags, ...addresses, ...args]);
      return code === 0 ? out : `exit code ${String(code)}: ${err}`;
    };
    assert.match(await lockstep(administrator, "member", "list"), /m3/);
    assert.match(await lockstep(administrator, "status"), /LEADER|leader/);
    assert.match(
      await lockstep(application, "lock", "deploy", "--", process.execPath, "-e", "console.log('held')"),
      /held/,
    );
    assert.match(await lockstep(application, "member", "list"), /exit code .*application; the admin API/s);
  });

  it("leaves and authority are replaced in three phases under load: no write fails and no stream drops", async (t) => {
    const { cell } = secure;
    const transport = new CountingTransport(new GrpcTransport(secure.applicationTls()));
    // A slow machine may move leadership meanwhile: then a write is sent again, and takes longer. It must not fail.
    const writers = await Writers.start(cell.endpoints, 8, { transport, deadlineMs: 60_000 });
    try {
      await writers.progress(200);
      const old = secure.leaf("client/application");

      // Found by looking at the files.
      secure.bundle = first.cert + second.cert;
      secure.mountAll();
      await secure.settled(bundleHashOf(first, second), leafHashOf);
      await writers.progress(200);

      // Looked at at once, as told.
      secure.replaceLeaves(second);
      secure.mountAll();
      for (const member of cell.members) member.signal("SIGHUP");
      await secure.settled(bundleHashOf(second, first), leafHashOf);
      await writers.progress(200);

      secure.bundle = second.cert;
      secure.mountAll();
      for (const member of cell.members) member.signal("SIGHUP");
      await secure.settled(bundleHashOf(second), leafHashOf);
      await writers.progress(200);

      assert.equal(writers.failedCount, 0);
      assert.deepEqual(transport.dropped, []);
      for (const member of cell.members) {
        const late = new Visitor(member, secure.bundle, old);
        await assert.rejects(late.http());
        assert.match(await late.grpc(), /no member/);
        assert.equal(await late.adminCode((api) => api.status()), status.UNAVAILABLE);
      }

      // A client that is cut off now comes back with what is mounted now, as do the members among each other.
      const { opened } = transport;
      const leader = await cell.leader();
      await leader.kill("SIGTERM");
      leader.start();
      await writers.progress(200);
      assert.ok(transport.opened > opened);
      await cell.agreedDigest();
    } finally {
      const acknowledged = await writers.stop();
      await assertAllThere(cell.endpoints, acknowledged, { tls: secure.applicationTls() });
      t.diagnostic(
        `${String(writers.acknowledgedCount)} writes, longest gap ${writers.longestGapMs.toFixed(0)} ms`,
      );
    }
  });

  it("bad files are refused as a whole, told in status and metrics, and forgotten with the next good ones", async () => {
    const { cell } = secure;
    const [one] = cell.members;
    assert.ok(one !== undefined);
    const mounted = leafHashOf(one.name);
    const mount = secure.mountOf(one.name);
    mount.write(issueFor(second, "member/somebody-else"), secure.bundle);
    one.signal("SIGHUP");
    await until("the member tells that it refused", async () => {
      const { tls } = await one.adminApi.status();
      assert.equal(tls?.leafHash, mounted);
      return /is for member\/somebody-else/.test(tls.reloadError) ? true : undefined;
    });
    const metrics = await (await fetch(`http://${one.address(4)}/metrics`)).text();
    assert.match(metrics, /lockstep_certificate_reloads_total\{result="refused"\} 1/);
    mount.write(secure.leaf(`member/${one.name}`), secure.bundle);
    one.signal("SIGHUP");
    await until("the member tells that all is well again", async () => {
      const { tls } = await one.adminApi.status();
      return tls?.reloadError === "" && tls.leafHash === mounted ? true : undefined;
    });
  });
});

function learner(like: { incarnation: string; addresses: unknown }): Parameters<AdminApi["addLearner"]>[0] {
  return like as unknown as Parameters<AdminApi["addLearner"]>[0];
}
