import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { describe, it } from "node:test";
import type { ChannelCredentials } from "@grpc/grpc-js";
import { credentials, status } from "@grpc/grpc-js";
import { coordination as proto } from "@lockstep/proto";
import { startHttpDoor } from "./http/server.ts";
import { isLoopback } from "./listen.ts";
import { createNativeDoor } from "./native/door.ts";
import { startGrpcServer } from "./native/grpc-server.ts";
import { hasOpenssl, makeCertificates } from "./testing/certificates.ts";
import { MemoryCoordinator } from "./testing/memory-coordinator.ts";
import { RawClient } from "./testing/native-client.ts";

const skip = hasOpenssl() ? false : "needs the openssl command";

describe("doors with TLS", { skip, timeout: 20_000 }, () => {
  const certificates = skip === false ? makeCertificates() : undefined;

  it("HTTP: serves a client with a certificate of the CA, and no other", async () => {
    assert.ok(certificates);
    const { ca, server, client } = certificates;
    const coordinator = new MemoryCoordinator();
    const door = await startHttpDoor({ coordinator, host: "127.0.0.1", port: 0, tls: { ...server, ca } });
    const target = { host: "127.0.0.1", port: door.address.port, path: "/v1/info", agent: false, ca };
    const good = request({ ...target, ...client });
    good.end();
    const [response] = (await once(good, "response")) as [IncomingMessage];
    assert.equal(response.statusCode, 200);
    response.resume();
    const anonymous = request(target);
    anonymous.end();
    const [error] = (await once(anonymous, "error")) as [Error];
    assert.ok(error instanceof Error);
    await door.close(100);
  });

  it("gRPC: serves a client with a certificate of the CA, and no other", async () => {
    assert.ok(certificates);
    const { ca, server, client } = certificates;
    const door = createNativeDoor({ coordinator: new MemoryCoordinator() });
    const listener = await startGrpcServer({
      host: "127.0.0.1",
      port: 0,
      tls: { ...server, ca },
      services: [door],
    });
    const info = async (using: ChannelCredentials): Promise<Buffer> => {
      const raw = new RawClient(`127.0.0.1:${listener.address.port}`, using, {
        "grpc.use_local_subchannel_pool": 1,
      });
      try {
        return await raw.unary(proto.CoordinationService.info.path, Buffer.alloc(0));
      } finally {
        raw.close();
      }
    };
    const answer = await info(credentials.createSsl(ca, client.key, client.cert));
    assert.equal(proto.InfoResponse.decode(answer).memberId, 1);
    await assert.rejects(info(credentials.createSsl(ca)), { code: status.UNAVAILABLE });
    door.close();
    await listener.close(100);
  });
});

it("only literal loopback addresses and localhost may be bound without TLS", () => {
  for (const host of ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
    assert.equal(isLoopback(host), true, host);
  for (const host of ["0.0.0.0", "::", "10.0.0.1", "127.example.com", "localhost.example.com", ""]) {
    assert.equal(isLoopback(host), false, host);
  }
});
