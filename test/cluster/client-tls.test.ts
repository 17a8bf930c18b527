import assert from "node:assert/strict";
import { once } from "node:events";
import { createSecureServer, createServer, type Http2SecureServer, type Http2Server } from "node:http2";
import type { AddressInfo } from "node:net";
import { after, before, describe, it } from "node:test";
import type { TlsOptions } from "@lockstep/client";
import { GrpcTransport } from "@lockstep/client/transport";
import { TestAuthority } from "../support/certificates.ts";

describe("whom the client's transport believes", { timeout: 30_000 }, () => {
  const authority = new TestAuthority("the cell's");
  let named: Http2SecureServer;
  let loopback: Http2SecureServer;

  before(async () => {
    named = await serve({ dns: ["cell-0.example"], ips: [] });
    loopback = await serve({});
  });
  after(() => {
    named.close();
    loopback.close();
  });

  /** Answers every stream at once, with a status that says so. */
  async function serve(names: {
    readonly dns?: readonly string[];
    readonly ips?: readonly string[];
  }): Promise<Http2SecureServer> {
    const { cert, key } = authority.issue(names);
    const server = createSecureServer({ cert, key, ca: authority.cert, requestCert: true });
    server.on("stream", (stream) =>
      stream.respond(
        { ":status": 200, "content-type": "application/grpc", "grpc-status": "0" },
        { endStream: true },
      ),
    );
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return server;
  }

  /** @returns undefined: the stream came about; otherwise what was wrong */
  async function dial(
    server: Http2SecureServer | Http2Server,
    tls: TlsOptions | "plain",
  ): Promise<string | undefined> {
    const own = { ...keysOf(authority), ca: Buffer.from(authority.cert) };
    const address = `127.0.0.1:${String((server.address() as AddressInfo).port)}`;
    const reason = await new Promise<Error | undefined>((resolve) => {
      new GrpcTransport(tls === "plain" ? undefined : { ...own, ...tls }).open(address, {
        frame: () => undefined,
        drained: () => undefined,
        closed: resolve,
      });
    });
    return reason?.message;
  }

  function keysOf(issuer: TestAuthority): { readonly cert: Buffer; readonly key: Buffer } {
    const { cert, key } = issuer.issue({ commonName: "application" });
    return { cert: Buffer.from(cert), key: Buffer.from(key) };
  }

  it("one whose certificate has the dialled host, or the name that is expected instead", async () => {
    assert.equal(await dial(loopback, {}), undefined);
    assert.equal(await dial(named, { serverName: "cell-0.example" }), undefined);
    const warnings: string[] = [];
    const note = (warning: Error): number => warnings.push(warning.message);
    process.on("warning", note);
    assert.equal(await dial(loopback, { serverName: "127.0.0.1" }), undefined);
    process.off("warning", note);
    assert.deepEqual(warnings, [], "an address is no name for the handshake");
  });

  it("nobody whose certificate has another name", async () => {
    assert.match((await dial(named, {})) ?? "", /does not match certificate's altnames.*127\.0\.0\.1/);
    assert.match((await dial(named, { serverName: "cell-1.example" })) ?? "", /altnames/);
    assert.match((await dial(loopback, { serverName: "10.0.0.1" })) ?? "", /altnames/);
  });

  it("nobody whose certificate another authority has signed, whatever the environment says", async () => {
    const other = Buffer.from(new TestAuthority("another").cert);
    process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";
    try {
      assert.match((await dial(loopback, { ca: other })) ?? "", /certificate/);
    } finally {
      delete process.env["NODE_TLS_REJECT_UNAUTHORIZED"];
    }
  });

  it("and what is said when only one side speaks TLS", async () => {
    assert.equal(
      await dial(loopback, "plain"),
      "the connection was closed before anything was answered; does it expect TLS?",
    );
    const plain = createServer().listen(0, "127.0.0.1");
    plain.on("sessionError", () => undefined);
    await once(plain, "listening");
    assert.equal(await dial(plain, {}), "TLS: wrong version number (what answers does not speak TLS)");
    plain.close();
  });

  it("and what is said when the client's own certificate is not taken", async () => {
    // With TLS 1.3 the client has finished its handshake by then: whether the server's alert is still read is chance.
    const refused =
      /^(TLS: .*(alert|unknown ca).*|.* before anything was answered; does it accept this client's certificate\?)$/;
    assert.match((await dial(loopback, keysOf(new TestAuthority("another")))) ?? "", refused);
  });
});
