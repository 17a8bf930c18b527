import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import { mergeConditions } from "./conditions.ts";
import { durationMs, durationText } from "./duration.ts";
import * as kinds from "./kinds.ts";
import { identityOf, selectorText } from "./labels.ts";
import { CELL_NAME_LENGTH_MAX, clientHost, memberHost, memberSecretName, peersServiceName } from "./names.ts";
import { compareQuantities, isQuantity, quantityValue } from "./quantity.ts";
import type { Condition } from "./types.ts";

describe("a duration", () => {
  it("is read in hours, minutes and seconds", () => {
    for (const [text, ms] of [
      ["10m", 600_000],
      ["1h30m", 5_400_000],
      ["2160h", 7_776_000_000],
      ["1h1m1s", 3_661_000],
      ["90s", 90_000],
    ] as const) {
      assert.equal(durationMs(text), ms, text);
    }
  });

  it("is refused in any other words", () => {
    for (const text of ["", "10", "m", "10 m", "1m1h", "-1m", "1.5h", "1d", "500ms"]) {
      assert.throws(() => durationMs(text), TypeError, text);
    }
  });

  it("is read back from what is written of it", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 3_000_000 }), (seconds) => {
        assert.equal(durationMs(durationText(seconds * 1_000)), seconds * 1_000);
      }),
    );
  });
});

describe("a quantity", () => {
  it("is worth what Kubernetes says", () => {
    for (const [text, value] of [
      ["0", 0],
      ["1", 1],
      ["1500m", 2],
      ["1k", 1_000],
      ["1Ki", 1_024],
      ["1.5Gi", 1_610_612_736],
      ["0.1Ki", 103],
      ["1e3", 1_000],
      ["2E2", 200],
      ["10G", 10_000_000_000],
      ["1n", 1],
      ["+3M", 3_000_000],
      [".5Ki", 512],
      ["4Pi", 4_503_599_627_370_496],
    ] as const) {
      assert.equal(quantityValue(text), value, text);
      assert.ok(isQuantity(text), text);
    }
  });

  it("is refused when it is none, or too large for a number", () => {
    for (const text of ["", ".", "Gi", "1 Gi", "1GiB", "ten", "1e", "1ee3", "0x10"]) {
      assert.throws(() => quantityValue(text), TypeError, text);
      assert.equal(isQuantity(text), false, text);
    }
    assert.throws(() => quantityValue("16Ei"), RangeError);
  });

  it("is compared exactly, whatever it is written in", () => {
    for (const [a, b, order] of [
      ["1Gi", "1024Mi", 0],
      ["1G", "1Gi", -1],
      ["10Gi", "9999Mi", 1],
      ["0.5", "500m", 0],
      ["9007199254740993", "9007199254740992", 1],
      [1, "1", 0],
    ] as const) {
      assert.equal(compareQuantities(a, b), order, `${String(a)} ${b}`);
    }
    const small = fc.nat(2 ** 31);
    fc.assert(
      fc.property(small, small, (a, b) => {
        assert.equal(compareQuantities(`${String(a)}Mi`, `${String(b * 1_024)}Ki`), Math.sign(a - b));
        assert.equal(compareQuantities(`${String(a)}m`, String(b)), Math.sign(a - b * 1_000));
      }),
    );
  });
});

describe("merged conditions", () => {
  const ready: Condition = {
    type: "Ready",
    status: "True",
    reason: "AsWanted",
    message: "three of three voters are ready",
    lastTransitionTime: "2026-01-01T00:00:00.000Z",
  };

  it("keep the time of a change when only words change", () => {
    const merged = mergeConditions(
      [ready],
      [{ ...ready, message: "other words" }],
      "2026-02-02T00:00:00.000Z",
    );
    assert.deepEqual(merged, [{ ...ready, message: "other words" }]);
  });

  it("note the time when the status changes", () => {
    const now = "2026-02-02T00:00:00.000Z";
    const [merged] = mergeConditions([ready], [{ ...ready, status: "False" }], now);
    assert.equal(merged?.lastTransitionTime, now);
  });

  it("drop what is not wanted any more, and stand in one order whatever order they came in", () => {
    const now = "2026-02-02T00:00:00.000Z";
    const wanted = ["Zebra", "Stalled", "Aardvark", "Ready"].map((type) => ({ ...ready, type }));
    const merged = mergeConditions([{ ...ready, type: "Gone" }], wanted, now);
    assert.deepEqual(
      merged.map(({ type }) => type),
      ["Ready", "Stalled", "Aardvark", "Zebra"],
    );
    assert.deepEqual(mergeConditions(merged, [...wanted].reverse(), "2027-01-01T00:00:00.000Z"), merged);
  });

  it("shorten a message that the resource could not hold", () => {
    const [merged] = mergeConditions([], [{ ...ready, message: "x".repeat(100_000) }], "now");
    assert.equal(merged?.message.length, 32_768);
  });
});

describe("names", () => {
  it("fit in a DNS label for the longest cell that the resource allows", () => {
    const cell = "c".repeat(CELL_NAME_LENGTH_MAX);
    assert.ok(peersServiceName(cell).length <= 63);
    const member = `${cell}-x7k2p`;
    assert.ok(member.length <= 63);
    assert.ok(memberSecretName(member).length <= 253);
    assert.ok(memberHost(member, cell, "n".repeat(63)).length <= 253);
    assert.equal(memberHost("a-1", "a", "apps"), "a-1.a-peers.apps.svc");
    assert.equal(clientHost("a", "apps"), "a-client.apps.svc");
  });

  it("of the longest cell are what the definition says", () => {
    const yaml = readFileSync(join(import.meta.dirname, "../../../crds/coordinationcells.yaml"), "utf8");
    assert.ok(yaml.includes(`self.metadata.name.size() <= ${String(CELL_NAME_LENGTH_MAX)}`));
  });
});

describe("kinds", () => {
  it("name each resource once", () => {
    const keys = Object.values(kinds).map(({ apiVersion, plural }) => `${apiVersion}/${plural}`);
    assert.equal(new Set(keys).size, keys.length);
    assert.equal(kinds.CELL_NAMESPACE.plural, "cellnamespaces");
    assert.equal(kinds.KUBERNETES_NAMESPACE.namespaced, false);
  });
});

describe("labels", () => {
  it("select in one text whatever order they were put in", () => {
    assert.equal(selectorText({ b: "2", a: "1" }), "a=1,b=2");
  });

  it("are not made for a cell that the apiserver has not seen", () => {
    const cell = { apiVersion: "lockstep.dev/v1alpha1", kind: "CoordinationCell", metadata: { name: "a" } };
    assert.throws(() => identityOf(cell as never), /was not read from the apiserver/);
  });
});
