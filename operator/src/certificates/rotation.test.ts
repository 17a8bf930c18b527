import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { planRotation, renewalMs } from "./rotation.ts";
import type { AuthorityFacts, HeldCertificate, Holder, RotationInput } from "./rotation.ts";

const DAY_MS = 24 * 3_600_000;
const bundleHashOf = (fingerprints: readonly string[]): string => [...new Set(fingerprints)].sort().join("+");

function authority(name: string, facts: Partial<AuthorityFacts> = {}): AuthorityFacts {
  return { fingerprints: [name], hasKey: true, notBeforeMs: 0, notAfterMs: 3_000 * DAY_MS, ...facts };
}

function holding(signer: string, trusted: readonly string[], facts: Partial<HeldCertificate> = {}) {
  return {
    leafHash: `leaf-of-${signer}`,
    signer,
    trusted,
    bundleHash: bundleHashOf(trusted),
    isUsable: true,
    notBeforeMs: 0,
    notAfterMs: 90 * DAY_MS,
    writtenMs: 0,
    ...facts,
  } satisfies HeldCertificate;
}

/** A member that has loaded what its Secret holds. */
function member(name: string, held: HeldCertificate | undefined, loaded: Holder["loaded"] = held): Holder {
  return { name: `member/${name}`, held, loaded };
}

function plan(input: Partial<RotationInput>) {
  return planRotation({
    authorities: { phase: "steady", current: authority("A") },
    holders: [],
    nowMs: DAY_MS,
    silentOverlapMs: 60_000,
    isRequested: false,
    bundleHashOf,
    ...input,
  });
}

const A = authority("A");
const B = authority("B");
const onA = holding("A", ["A"]);
const onBoth = holding("A", ["A", "B"]);
const reissued = holding("B", ["A", "B"]);
const onB = holding("B", ["B"]);

describe("the plan of certificates", () => {
  it("begins with an authority, once nobody has a certificate of another one", () => {
    assert.deepEqual(plan({ authorities: undefined, holders: [member("a", undefined)] }).step, {
      kind: "create-authority",
    });
  });

  it("gives everybody a certificate, and then does nothing", () => {
    const { step, due } = plan({ holders: [member("a", onA), member("b", undefined)] });
    assert.deepEqual(step, { kind: "write", holder: "member/b", trust: ["A"], leaf: "current" });
    assert.equal(due, "issue");
    assert.deepEqual(plan({ holders: [member("a", onA)] }), {
      step: undefined,
      due: undefined,
      waiting: undefined,
      lookAgainMs: undefined,
    });
  });

  it("renews a leaf after two thirds of its life, and not before", () => {
    assert.equal(renewalMs(onA), 60 * DAY_MS);
    assert.equal(plan({ holders: [member("a", onA)], nowMs: 60 * DAY_MS - 1 }).step, undefined);
    assert.deepEqual(plan({ holders: [member("a", onA)], nowMs: 60 * DAY_MS }).step, {
      kind: "write",
      holder: "member/a",
      trust: ["A"],
      leaf: "current",
    });
  });

  it("issues anew what does not fit its holder, or what nobody known has signed", () => {
    for (const held of [
      holding("A", ["A"], { isUsable: false }),
      { ...onA, signer: undefined },
      holding("Z", ["A"]),
    ]) {
      assert.equal(plan({ holders: [member("a", held)] }).step?.kind, "write");
    }
  });

  it("mends a bundle without touching the leaf", () => {
    assert.deepEqual(plan({ holders: [member("a", holding("A", ["A", "Z"]))] }).step, {
      kind: "write",
      holder: "member/a",
      trust: ["A"],
      leaf: "keep",
    });
  });

  it("makes a next authority after two thirds of the first one's life, or when asked", () => {
    assert.deepEqual(plan({ holders: [member("a", onA)], isRequested: true }).step, { kind: "begin" });
    const late = { holders: [member("a", holding("A", ["A"], { notAfterMs: 9_000 * DAY_MS }))] };
    assert.equal(plan({ ...late, nowMs: 2_000 * DAY_MS - 1 }).step, undefined);
    assert.deepEqual(plan({ ...late, nowMs: 2_000 * DAY_MS }).step, { kind: "begin" });
  });
});

describe("a rotation of the authority", () => {
  const trusting = { phase: "trusting", current: A, next: B } as const;
  const reissuing = { phase: "reissuing", current: A, next: B } as const;
  const retiring = { phase: "retiring", current: A, next: B } as const;

  it("first has everybody trust both, with the leaves that they have", () => {
    const { step, due } = plan({ authorities: trusting, holders: [member("a", onA)] });
    assert.deepEqual(step, { kind: "write", holder: "member/a", trust: ["A", "B"], leaf: "keep" });
    assert.equal(due, "trust-both");
  });

  it("issues no leaf of the next authority before every member says that it trusts both", () => {
    for (const [loaded, why] of [
      [onA, /member\/b has not loaded its certificates yet/],
      [undefined, /member\/b does not say/],
    ] as const) {
      const { step, waiting } = plan({
        authorities: trusting,
        holders: [member("a", onBoth), { name: "member/b", held: onBoth, loaded }],
      });
      assert.equal(step, undefined);
      assert.match(waiting ?? "", why);
    }
    assert.deepEqual(plan({ authorities: trusting, holders: [member("a", onBoth)] }).step, {
      kind: "advance",
      to: "reissuing",
    });
  });

  it("then gives everybody a leaf of the next one, while both are trusted", () => {
    const { step, due } = plan({ authorities: reissuing, holders: [member("a", onBoth)] });
    assert.deepEqual(step, { kind: "write", holder: "member/a", trust: ["A", "B"], leaf: "next" });
    assert.equal(due, "reissue-leaves");
  });

  it("drops the first one from nobody before every member serves its new leaf", () => {
    const { step, waiting } = plan({
      authorities: reissuing,
      holders: [
        member("a", reissued),
        { name: "member/b", held: reissued, loaded: onBoth, reloadError: "no space left" },
      ],
    });
    assert.equal(step, undefined);
    assert.match(waiting ?? "", /member\/b has not loaded its certificates yet: no space left/);
    assert.deepEqual(plan({ authorities: reissuing, holders: [member("a", reissued)] }).step, {
      kind: "advance",
      to: "retiring",
    });
  });

  it("ends when everybody trusts the next one alone", () => {
    assert.deepEqual(plan({ authorities: retiring, holders: [member("a", reissued)] }).step, {
      kind: "write",
      holder: "member/a",
      trust: ["B"],
      leaf: "keep",
    });
    assert.equal(
      plan({ authorities: retiring, holders: [{ name: "member/a", held: onB, loaded: reissued }] }).step,
      undefined,
    );
    assert.deepEqual(plan({ authorities: retiring, holders: [member("a", onB)] }).step, { kind: "finish" });
  });

  it("gives a newcomer what the phase of the moment wants", () => {
    for (const [authorities, trust, leaf] of [
      [trusting, ["A", "B"], "current"],
      [reissuing, ["A", "B"], "next"],
      [retiring, ["B"], "next"],
    ] as const) {
      assert.deepEqual(plan({ authorities, holders: [member("new", undefined)] }).step, {
        kind: "write",
        holder: "member/new",
        trust,
        leaf,
      });
    }
  });

  it("gives those who say nothing their time", () => {
    const client: Holder = {
      name: "client/default",
      held: { ...onBoth, writtenMs: DAY_MS - 20_000 },
      loaded: "silent",
    };
    const { step, lookAgainMs } = plan({ authorities: trusting, holders: [client] });
    assert.equal(step, undefined);
    assert.equal(lookAgainMs, 40_000);
    assert.equal(
      plan({ authorities: trusting, holders: [client], nowMs: DAY_MS + 40_000 }).step?.kind,
      "advance",
    );
  });
});

describe("an authority whose Secret or key is lost", () => {
  it("is trusted on while another one takes over", () => {
    assert.deepEqual(
      plan({ authorities: undefined, holders: [member("a", onBoth), member("b", onA)] }).step,
      {
        kind: "adopt-authority",
        trusted: ["A", "B"],
      },
    );
    const keyless = authority("A", { hasKey: false });
    assert.deepEqual(
      plan({ authorities: { phase: "steady", current: keyless }, holders: [member("a", onA)] }).step,
      { kind: "begin" },
    );
  });

  it("is trusted on, too, when the Secret was put back as it was before a rotation", () => {
    for (const held of [onB, { ...onB, signer: undefined }]) {
      assert.deepEqual(plan({ holders: [member("a", held), member("b", onBoth)] }).step, {
        kind: "adopt-authority",
        trusted: ["A", "B"],
      });
    }
  });

  it("keeps no newcomer from being counted out until the next one can sign for it", () => {
    const authorities = { phase: "trusting", current: authority("A", { hasKey: false }), next: B } as const;
    const holders = [member("a", onBoth), member("new", undefined)];
    assert.deepEqual(plan({ authorities, holders }).step, { kind: "advance", to: "reissuing" });
  });

  it("does not go on without a member that runs while its Secret is lost", () => {
    const authorities = { phase: "trusting", current: authority("A", { hasKey: false }), next: B } as const;
    const { step, waiting } = plan({
      authorities,
      holders: [{ name: "member/a", held: undefined, loaded: onA }],
    });
    assert.equal(step, undefined);
    assert.match(waiting ?? "", /member\/a runs, and its Secret is lost/);
  });

  it("never retires the old one when the next one cannot sign", () => {
    const next = authority("B", { hasKey: false });
    const { step, waiting } = plan({
      authorities: { phase: "reissuing", current: A, next },
      holders: [member("a", onBoth)],
    });
    assert.equal(step, undefined);
    assert.match(waiting ?? "", /delete the authority's Secret/);
  });
});
