import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { connect as connectTls } from "node:tls";
import type { ConnectionOptions } from "node:tls";
import { TestAuthority } from "@lockstep/gateway/testing/certificates";
import { encodeHello } from "./handshake.ts";
import type { PeerCertificateNames } from "./types.ts";
import { AUTHORITY, MEMBER_TLS, STRANGER_TLS, memberTls } from "./testing/certificates.ts";
import { CELL, Members, append, ask, heartbeat, id, join, peer, until } from "./testing/member.ts";

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

  it(
    "who was dialled is known by its certificate alone: by whatever name, and by no other",
    options,
    async () => {
      await using members = new Members();
      const one = await members.start(1, { tls: memberTls("m1") });
      const two = await members.start(2, { tls: memberTls("m2") });
      const asked: string[] = [];
      let wanted = "m3";
      // Both certificates are for a host "elsewhere", and 127.0.0.1 is dialled.
      const recognise = (address: string, { alternativeNames }: PeerCertificateNames): string | undefined => {
        asked.push(address);
        return alternativeNames.endsWith(`/member/${wanted}`) ? undefined : `not ${wanted}`;
      };
      one.host.recognise = recognise;
      one.transport.setPeers([peer(2, two.transport.address)]);
      await until(() =>
        one.host.logged.some((line) => line.includes("not the member that was dialled: not m3")),
      );
      assert.deepEqual(one.transport.connected(), []);
      // Nothing was said to it: not even who called.
      assert.deepEqual(two.host.refusals, []);
      assert.ok(!two.host.admitted);
      wanted = "m2";
      await until(() => one.transport.connected().length === 1);
      assert.deepEqual(new Set(asked), new Set([two.transport.address]));
      assert.ok(two.host.admitted);
    },
  );

  it("an open connection outlives a renewal, and messages go on", options, async () => {
    await using members = new Members();
    const one = await members.start(1, { tls: MEMBER_TLS });
    const two = await members.start(2, { tls: MEMBER_TLS });
    await join(one, two);
    const next = new TestAuthority("next");
    for (const { transport } of [one, two]) transport.updateTls(memberTls(undefined, next));
    one.transport.send([heartbeat(1, 2, 7)]);
    await until(() => two.host.messagesReceived.length === 1);
    assert.deepEqual([one.host.lost, two.host.lost], [[], []]);
  });

  it("a dropped authority takes its tickets with it: nobody resumes a session", options, async () => {
    await using members = new Members();
    const next = new TestAuthority("next");
    const both = AUTHORITY.cert + next.cert;
    const { transport } = await members.start(1, { tls: { ...MEMBER_TLS, ca: both } });
    const hello = encodeHello({ cellId: CELL, memberId: id(2), incarnation: "life-2" }, id(1), "raft");
    /** Shakes hands as a member would. Tickets, if there were any, come before the answer. */
    const visit = async (
      tls: ConnectionOptions,
    ): Promise<{ answered: boolean; resumed: boolean; session: Buffer | undefined }> => {
      const [host, port] = transport.address.split(":");
      const socket = connectTls({ host, port: Number(port), ...tls, ca: both });
      const seen = { answered: false, resumed: false, session: undefined as Buffer | undefined };
      socket.on("session", (ticket: Buffer) => (seen.session = ticket));
      socket.on("error", () => undefined);
      socket.once("data", () => {
        seen.answered = true;
        socket.destroy();
      });
      socket.once("secureConnect", () => {
        seen.resumed = socket.isSessionReused();
        for (const part of hello.parts) socket.write(part);
      });
      await new Promise((resolve) => socket.once("close", resolve));
      return seen;
    };
    const { session, answered } = await visit(MEMBER_TLS);
    assert.ok(answered);
    const offer = session === undefined ? {} : { session };
    const again = await visit({ ...MEMBER_TLS, ...offer });
    assert.deepEqual([again.answered, again.resumed], [true, false]);
    assert.equal((await visit({ ...MEMBER_TLS, maxVersion: "TLSv1.2" })).answered, false);
    const renewed = memberTls(undefined, next);
    transport.updateTls(renewed);
    const late = await visit({ ...MEMBER_TLS, ...offer });
    assert.deepEqual([late.answered, late.resumed], [false, false]);
    assert.equal((await visit({ ...renewed, ...offer })).answered, true);
    assert.equal((await visit({ ...renewed, maxVersion: "TLSv1.2" })).answered, false);
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
