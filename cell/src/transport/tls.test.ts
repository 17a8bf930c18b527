import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { PeerCertificateNames } from "./types.ts";
import { MEMBER_TLS, STRANGER_TLS } from "./testing/certificates.ts";
import { Members, append, ask, join, peer, until } from "./testing/member.ts";

const options = { timeout: 10_000 };

describe("with TLS", () => {
  it(
    "members with certificates of the cell's authority talk, and admit sees the names",
    options,
    async () => {
      await using members = new Members();
      const one = await members.start(1, { tls: MEMBER_TLS });
      const two = await members.start(2, { tls: MEMBER_TLS });
      let names: PeerCertificateNames | undefined;
      two.host.admit = (...asked: { certificate?: PeerCertificateNames }[]) => {
        names = asked[0]?.certificate;
        return { ok: true };
      };
      await join(one, two);
      const data = Buffer.alloc(500_000, 5);
      one.transport.send([append(1, 2, data)]);
      await until(() => two.host.messagesReceived.length === 1);
      const received = two.host.messagesReceived[0]!;
      assert.ok(received.kind === "append");
      assert.deepEqual(Buffer.from(received.entries[0]!.data), data);
      assert.deepEqual(Buffer.from((await ask(one, 2, Buffer.from("x"))) as Uint8Array), Buffer.from("x"));
      assert.equal(names?.commonName, "member-of-a-test");
      assert.match(names.alternativeNames, /IP Address:127\.0\.0\.1/);
    },
  );

  it("a certificate of another authority and a plain dialler do not get in", options, async () => {
    await using members = new Members();
    const two = await members.start(2, { tls: MEMBER_TLS });
    const stranger = await members.start(1, { tls: STRANGER_TLS });
    const plain = await members.start(3);
    stranger.transport.setPeers([peer(2, two.transport.address)]);
    plain.transport.setPeers([peer(2, two.transport.address)]);
    await until(() => stranger.host.notReached.length > 1 || stranger.host.lost.length > 0);
    await until(() => plain.host.notReached.length > 1);
    assert.deepEqual(stranger.transport.connected(), []);
    assert.deepEqual(plain.transport.connected(), []);
    assert.ok(two.host.logged.some((line) => line.includes("TLS handshake")));
  });

  it("renewed certificates hold for connections to come, both dialled and accepted", options, async () => {
    await using members = new Members();
    const one = await members.start(1, { tls: STRANGER_TLS });
    const two = await members.start(2, { tls: MEMBER_TLS });
    one.transport.setPeers([peer(2, two.transport.address)]);
    two.transport.setPeers([peer(1, one.transport.address)]);
    await until(() => one.host.notReached.length > 0 && two.host.notReached.length > 0);
    assert.deepEqual([one.transport.connected(), two.transport.connected()], [[], []]);
    one.transport.updateTls(MEMBER_TLS);
    await join(one, two);
  });

  it("any host may be bound, and closing ends half-made connections", options, async () => {
    await using members = new Members();
    const one = await members.start(1, { tls: MEMBER_TLS, listen: { host: "0.0.0.0", port: 0 } });
    const { connect } = await import("node:net");
    const socket = connect(Number(one.transport.address.split(":")[1]), "127.0.0.1");
    socket.on("error", () => undefined);
    await new Promise((resolve) => socket.once("connect", resolve));
    const closed = new Promise((resolve) => socket.once("close", resolve));
    await one.transport.close();
    await closed;
  });
});
