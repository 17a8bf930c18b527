// Rotations under crashes, stale looks, late kubelets, newcomers and lost Secrets: at every moment every two running
// members trust each other's leaf, and when the faults end the rotation does too.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { planRotation } from "./rotation.ts";
import type { Authorities, AuthorityFacts, Holder, RotationInput, RotationStep } from "./rotation.ts";

const bundleHashOf = (fingerprints: readonly string[]): string => [...new Set(fingerprints)].sort().join("+");

interface Material {
  readonly leaf: string;
  readonly signer: string;
  readonly trusted: readonly string[];
}

interface Member {
  readonly name: string;
  /** Every state of its Secret, oldest first; empty: it has none. */
  readonly versions: Material[];
  /** Index of the version that its kubelet shows it; -1: none. */
  shown: number;
  loaded: Material | undefined;
}

interface Look {
  readonly input: RotationInput;
  readonly authorityVersion: number;
  readonly secretVersions: ReadonlyMap<string, number>;
}

/** Kubernetes, the members and time, as far as certificates go. Every choice comes from outside. */
class World {
  members: Member[] = [];
  authorities: Authorities | undefined;
  authorityVersion = 0;
  requested = false;
  /** The mutant: believes that what was written was loaded. */
  readonly #credulous: boolean;
  #made = 0;

  constructor(credulous = false) {
    this.#credulous = credulous;
    for (const name of ["a", "b", "c"]) this.join(name);
  }

  join(name: string): void {
    this.members.push({ name, versions: [], shown: -1, loaded: undefined });
  }

  /** A kubelet catches up by some versions, and the member loads what it is shown. */
  load(member: Member, by: number): void {
    member.shown = Math.min(member.shown + by, member.versions.length - 1);
    member.loaded = member.versions[member.shown] ?? member.loaded;
  }

  look(silent?: Member): Look {
    const holders = this.members.map((member): Holder => {
      const secret = member.versions.at(-1);
      const loaded = this.#credulous ? secret : member === silent ? undefined : member.loaded;
      return {
        name: member.name,
        held: secret && {
          leafHash: secret.leaf,
          signer: secret.signer,
          trusted: secret.trusted,
          bundleHash: bundleHashOf(secret.trusted),
          isUsable: true,
          notBeforeMs: 0,
          notAfterMs: 1e9,
          writtenMs: 0,
        },
        loaded: loaded && { bundleHash: bundleHashOf(loaded.trusted), leafHash: loaded.leaf },
      };
    });
    return {
      input: {
        authorities: this.authorities,
        holders,
        nowMs: 1,
        silentOverlapMs: 0,
        isRequested: this.requested,
        bundleHashOf,
      },
      authorityVersion: this.authorityVersion,
      secretVersions: new Map(this.members.map(({ name, versions }) => [name, versions.length])),
    };
  }

  /** Does what was planned on a look, unless what it would replace has changed since: the apiserver refuses that. */
  act(look: Look): void {
    const { step } = planRotation(look.input);
    if (step === undefined) return;
    if (step.kind !== "write") {
      if (look.authorityVersion !== this.authorityVersion) return;
      this.authorities = this.#after(step);
      this.authorityVersion += 1;
      if (step.kind === "begin") this.requested = false;
      return;
    }
    const member = this.members.find(({ name }) => name === step.holder);
    if (member === undefined || member.versions.length !== look.secretVersions.get(member.name)) return;
    const authorities = look.input.authorities;
    const before = member.versions.at(-1);
    if (step.leaf === "keep") {
      assert.ok(before !== undefined);
      member.versions.push({ ...before, trusted: step.trust });
      return;
    }
    const signer =
      step.leaf === "current"
        ? authorities?.current.fingerprints[0]
        : authorities?.phase === "steady"
          ? undefined
          : authorities?.next.fingerprints[0];
    assert.ok(signer !== undefined);
    member.versions.push({ leaf: `leaf-${String(++this.#made)}`, signer, trusted: step.trust });
  }

  #after(step: Exclude<RotationStep, { kind: "write" }>): Authorities {
    const made = (): AuthorityFacts => ({
      fingerprints: [`ca-${String(++this.#made)}`],
      hasKey: true,
      notBeforeMs: 0,
      notAfterMs: 1e9,
    });
    const now = this.authorities;
    switch (step.kind) {
      case "create-authority":
        return { phase: "steady", current: made() };
      case "adopt-authority": {
        const current = { ...made(), fingerprints: step.trusted, hasKey: false };
        return { phase: "trusting", current, next: made() };
      }
      case "begin":
        assert.ok(now?.phase === "steady");
        return { phase: "trusting", current: now.current, next: made() };
      case "advance":
        assert.ok(now !== undefined && now.phase !== "steady");
        return { ...now, phase: step.to };
      case "finish":
        assert.ok(now?.phase === "retiring");
        return { phase: "steady", current: now.next };
    }
  }

  check(): void {
    const running = this.members.filter(({ loaded }) => loaded !== undefined);
    for (const one of running) {
      for (const other of running) {
        assert.ok(
          other.loaded!.trusted.includes(one.loaded!.signer),
          `${other.name} trusts ${other.loaded!.trusted.join("+")}, and ${one.name} has a leaf of ${one.loaded!.signer}`,
        );
      }
    }
  }

  /** No faults any more: how it ends. */
  settle(): void {
    for (let round = 0; round < 200; round += 1) {
      const look = this.look();
      if (planRotation(look.input).step === undefined) {
        const lagging = this.members.filter(({ shown, versions }) => shown < versions.length - 1);
        if (lagging.length === 0) return;
      }
      this.act(look);
      for (const member of this.members) {
        this.load(member, 1);
        this.check();
      }
    }
    assert.fail("it does not come to rest");
  }
}

type Event =
  | { readonly kind: "pass" | "crash" | "request" | "join" | "remember" | "act-late" }
  | { readonly kind: "load" | "silence" | "leave" | "progress"; readonly who: number; readonly by: number }
  | { readonly kind: "lose-authority" | "save-authority" | "restore-authority" };

const event: fc.Arbitrary<Event> = fc.oneof(
  { weight: 8, arbitrary: fc.constant({ kind: "pass" as const }) },
  { weight: 1, arbitrary: fc.constantFrom("crash" as const, "join" as const).map((kind) => ({ kind })) },
  { weight: 2, arbitrary: fc.constant({ kind: "request" as const }) },
  {
    weight: 2,
    arbitrary: fc.constantFrom("remember" as const, "act-late" as const).map((kind) => ({ kind })),
  },
  {
    weight: 10,
    arbitrary: fc.record({
      kind: fc.constant("load" as const),
      who: fc.nat(5),
      by: fc.integer({ min: 1, max: 3 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("progress" as const),
      who: fc.constant(0),
      by: fc.integer({ min: 1, max: 8 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom("silence" as const, "leave" as const),
      who: fc.nat(5),
      by: fc.constant(0),
    }),
  },
  {
    weight: 2,
    arbitrary: fc
      .constantFrom("lose-authority" as const, "save-authority" as const, "restore-authority" as const)
      .map((kind) => ({ kind })),
  },
);

function play(world: World, events: readonly Event[]): void {
  let remembered: Look | undefined;
  let saved: Authorities | undefined;
  let joined = 0;
  for (const one of events) {
    const member = "who" in one ? world.members[one.who % world.members.length] : undefined;
    switch (one.kind) {
      case "pass":
        world.act(world.look());
        break;
      case "crash":
        // Planned, and not done.
        planRotation(world.look().input);
        break;
      case "remember":
        remembered = world.look();
        break;
      case "act-late":
        // Another operator, which looked a while ago.
        if (remembered !== undefined) world.act(remembered);
        break;
      case "request":
        world.requested = true;
        break;
      case "join":
        if (world.members.length < 6) world.join(`n${String(++joined)}`);
        break;
      case "load":
        if (member !== undefined) world.load(member, one.by);
        break;
      case "progress":
        // Without this few histories would come as far as the later phases.
        for (let step = 0; step < one.by; step += 1) {
          world.act(world.look());
          for (const any of world.members) world.load(any, 3);
          world.check();
        }
        break;
      case "silence":
        world.act(world.look(member));
        break;
      case "leave":
        if (world.members.length > 3) world.members = world.members.filter((other) => other !== member);
        break;
      case "save-authority":
        saved = world.authorities;
        break;
      case "restore-authority":
        // From a backup, however old.
        if (saved === undefined) break;
        world.authorities = saved;
        world.authorityVersion += 1;
        remembered = undefined;
        break;
      case "lose-authority":
        // In any phase, by a person. Not while another operator still acts on what it saw of it before.
        world.authorities = undefined;
        world.authorityVersion += 1;
        remembered = undefined;
        break;
    }
    world.check();
  }
}

describe("a rotation under faults", () => {
  const runs = process.env["LOCKSTEP_TEST_DEPTH"] === "nightly" ? 20_000 : 1_000;
  const histories = fc.array(event, { minLength: 20, maxLength: 200 });

  it("never parts two members, and comes to rest when the faults end", () => {
    let finished = 0;
    fc.assert(
      fc.property(histories, (events) => {
        const world = new World();
        play(world, events);
        world.settle();
        world.check();
        assert.equal(world.authorities?.phase, "steady");
        if (world.authorityVersion > 4) finished += 1;
      }),
      { numRuns: runs },
    );
    assert.ok(finished > runs / 10, `only ${String(finished)} histories had a rotation in them`);
  });

  it("would part them if the phases did not wait for what members say", () => {
    const found = fc.check(
      fc.property(histories, (events) => play(new World(true), events)),
      { numRuns: runs },
    );
    assert.ok(found.failed);
    assert.match(String(found.errorInstance), /trusts .* has a leaf of/);
  });
});
