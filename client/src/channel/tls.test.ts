import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { LockstepError, connect, tlsFromFiles } from "../index.ts";
import { FakeMember } from "../testing/fake-cell.ts";
import { GrpcTransport } from "./grpc.ts";

test("TLS from files is read anew each time; a wrong path is told at once", () => {
  const directory = mkdtempSync(join(tmpdir(), "lockstep-client-tls-"));
  try {
    const path = (name: string): string => join(directory, name);
    for (const name of ["ca", "cert", "key"]) writeFileSync(path(name), `${name} 1`);
    const tls = tlsFromFiles({ ca: path("ca"), cert: path("cert"), key: path("key"), serverName: "cell" });
    const text = (): string => {
      const { ca, cert, key, serverName } = tls();
      return `${String(ca)}, ${String(cert)}, ${String(key)}, ${String(serverName)}`;
    };
    assert.equal(text(), "ca 1, cert 1, key 1, cell");
    writeFileSync(path("cert"), "cert 2");
    assert.equal(text(), "ca 1, cert 2, key 1, cell");
    rmSync(path("key"));
    assert.throws(tls, { code: "ENOENT" });
    assert.throws(() => tlsFromFiles({ ca: path("nowhere") }), { code: "ENOENT" });
    assert.deepEqual(tlsFromFiles({ ca: path("ca") })(), { ca: Buffer.from("ca 1") });
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test("a function is asked before every attempt, and what it throws is the reason that the user reads", async () => {
  const member = await FakeMember.start({});
  let asked = 0;
  try {
    const connecting = connect({
      endpoints: [member.address],
      connectTimeoutMs: 1_000,
      tls: () => {
        asked += 1;
        throw new Error(`the secret is not mounted (${String(asked)})`);
      },
    });
    await assert.rejects(connecting, (error) => {
      assert.ok(error instanceof LockstepError);
      assert.equal(error.code, "unavailable");
      assert.match(error.message, /the secret is not mounted/);
      return true;
    });
    assert.ok(asked > 1, "the next attempt asks again");
  } finally {
    member.stop();
  }
});

test("a link that cannot be begun is closed after the call has returned, unless it was dropped before", async () => {
  const transport = new GrpcTransport(() => {
    throw new Error("no key");
  });
  const events: string[] = [];
  const sink = { frame: () => undefined, drained: () => undefined };
  const dropped = transport.open("127.0.0.1:1", { ...sink, closed: () => events.push("dropped") });
  dropped.destroy();
  await new Promise<void>((resolve) => {
    transport.open("127.0.0.1:1", {
      ...sink,
      closed: (reason) => {
        events.push(reason?.message ?? "");
        resolve();
      },
    });
    events.push("returned");
  });
  assert.deepEqual(events, ["returned", "no key"]);
});
