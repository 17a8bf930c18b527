import assert from "node:assert/strict";
import { it } from "node:test";
import { STREAMS_MAX_BOUNDS, assertListenAllowed, parseCount, tlsOptionsOf } from "./options.ts";
import type { ListenAddresses } from "./options.ts";

const FLAGS = { tlsCert: "c", tlsKey: "k", tlsCa: "a", tlsCellUid: "u-1" };
const LOCAL: ListenAddresses = {
  client: "127.0.0.1:1",
  http: "localhost:2",
  peer: "[::1]:3",
  admin: "127.0.0.1:4",
  ops: "0.0.0.0:5",
};

it("the flags of TLS go together", () => {
  assert.equal(tlsOptionsOf({}), undefined);
  assert.deepEqual(tlsOptionsOf(FLAGS), { cert: "c", key: "k", ca: "a", cellUid: "u-1" });
  for (const [flag, name] of Object.entries({
    tlsCert: "--tls-cert",
    tlsKey: "--tls-key",
    tlsCa: "--tls-ca",
    tlsCellUid: "--tls-cell-uid",
  })) {
    assert.throws(() => tlsOptionsOf({ ...FLAGS, [flag]: undefined }), new RegExp(`and ${name} is missing`));
  }
  for (const uid of ["", "a/b", "a b", "a".repeat(64)]) {
    assert.throws(() => tlsOptionsOf({ ...FLAGS, tlsCellUid: uid }), /--tls-cell-uid must be/);
  }
});

it("without TLS only loopback is listened on, save for probes and metrics; with it, anything", () => {
  assertListenAllowed(LOCAL, undefined);
  for (const port of ["client", "http", "peer", "admin"] as const) {
    const open = { ...LOCAL, [port]: "0.0.0.0:9" };
    assert.throws(
      () => assertListenAllowed(open, undefined),
      new RegExp(`--${port} 0\\.0\\.0\\.0:9 could be reached.*--tls-cert`),
    );
    assertListenAllowed(open, tlsOptionsOf(FLAGS));
  }
});

it("a flag with a number takes whole numbers within its bounds and nothing else", () => {
  assert.equal(parseCount("0"), 0);
  assert.equal(parseCount("1", STREAMS_MAX_BOUNDS), 1);
  assert.equal(parseCount("1000000", STREAMS_MAX_BOUNDS), 1_000_000);
  for (const text of ["0", "1000001", "-1", "1.5", "1e3", "0x10", "", " 7", "many"]) {
    assert.throws(() => parseCount(text, STREAMS_MAX_BOUNDS), /a whole number from 1 to 1000000 is wanted/);
  }
  assert.throws(() => parseCount("9007199254740993"), /a whole number is wanted/);
});
