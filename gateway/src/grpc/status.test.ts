import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { GrpcCode } from "./call.ts";
import { percentEncoded, trailersOf } from "./status.ts";
import { parseTimeout } from "./timeout.ts";

describe("the trailers of a status", () => {
  it("leave printable ASCII alone, and carry every other text through percent signs", () => {
    assert.equal(percentEncoded("key /a is not there"), "key /a is not there");
    assert.equal(percentEncoded("100% of ü\n"), "100%25 of %C3%BC%0A");
    assert.equal(percentEncoded(" edges "), "%20edges%20");
    for (const text of ["", "%", "\u0000\u007f", "日本 \r\n語", "a\u{1f600}b", " ", "x %20 y"]) {
      const encoded = percentEncoded(text);
      assert.match(encoded, /^[\x20-\x7e]*$/);
      assert.equal(decodeURIComponent(encoded), text);
    }
    assert.equal(percentEncoded("\ud800 alone"), "%EF%BF%BD alone");
  });

  it("are bounded, and cannot smuggle in control characters through metadata", () => {
    const trailers = trailersOf({
      code: GrpcCode.ABORTED,
      details: "x".repeat(100_000),
      metadata: { "lockstep-code": "a\r\nb: ü" },
    });
    assert.equal(trailers["grpc-status"], "10");
    assert.equal(String(trailers["grpc-message"]).length, 4_096);
    assert.equal(trailers["lockstep-code"], "a??b: ?");
  });

  it("have no message where there is nothing to say", () => {
    assert.deepEqual(trailersOf({ code: GrpcCode.OK, details: "" }), { "grpc-status": "0" });
  });
});

describe("grpc-timeout", () => {
  it("is digits and a unit", () => {
    for (const [text, ms] of [
      ["1H", 3_600_000],
      ["2M", 120_000],
      ["3S", 3_000],
      ["40m", 40],
      ["500u", 0.5],
      ["1000000n", 1],
      ["0m", 0],
      ["99999999H", 359_999_996_400_000],
    ] as const) {
      assert.equal(parseTimeout(text), ms, text);
    }
  });

  it("is refused in any other form", () => {
    for (const text of [
      "",
      "1",
      "m",
      "-1m",
      "1.5S",
      "1s",
      "100000000m",
      " 1m",
      "1m ",
      "1m, 2m",
      "1e3m",
      "٣m",
    ]) {
      assert.equal(parseTimeout(text), undefined, text);
    }
  });
});
