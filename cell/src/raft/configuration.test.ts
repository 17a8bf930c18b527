import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import { EMPTY_CONFIGURATION, applyChange, describeFlaw, evaluate, isJoint } from "./configuration.ts";
import { ConfigurationError, validateChange } from "./configuration.ts";
import {
  decodeConfiguration,
  decodeConfigurationChange,
  encodeConfiguration,
  encodeConfigurationChange,
} from "./configuration-codec.ts";
import { quorumsIntersect } from "./testing/invariants.ts";
import { renderConfiguration } from "./testing/render.ts";
import { parseChange } from "./testing/story.ts";
import { checkTranscript } from "./testing/transcript.ts";
import type { Configuration, ConfigurationChange, ConfigurationStep, MemberId } from "./types.ts";

const FOLDER = join(import.meta.dirname, "testdata", "configuration");

/** `start voters=1,2 learners=3`, then `change ...` as in the other transcripts. */
class Scene {
  #configuration = EMPTY_CONFIGURATION;

  run(command: string): string[] {
    const [verb, ...words] = command.split(" ");
    if (verb === "start") {
      const list = (name: string): MemberId[] => {
        const word = words.find((one) => one.startsWith(`${name}=`));
        return word === undefined
          ? []
          : (word
              .slice(name.length + 1)
              .split(",")
              .map(Number) as MemberId[]);
      };
      this.#configuration = { ...EMPTY_CONFIGURATION, voters: list("voters"), learners: list("learners") };
      return [renderConfiguration(this.#configuration)];
    }
    assert.equal(verb, "change");
    const outcome = evaluate(this.#configuration, parseChange(words));
    if (outcome instanceof ConfigurationError) return [`${outcome.code}: ${outcome.message}`];
    this.#configuration = outcome;
    return [renderConfiguration(outcome)];
  }
}

describe("configuration transcripts", () => {
  for (const file of readdirSync(FOLDER).sort()) {
    it(file.slice(0, -".txt".length), () => {
      const scene = new Scene();
      checkTranscript(join(FOLDER, file), (command) => scene.run(command));
    });
  }
});

const step: fc.Arbitrary<ConfigurationStep> = fc.record(
  {
    kind: fc.constantFrom("add-voter" as const, "add-learner" as const, "remove" as const),
    id: fc.integer({ min: 1, max: 6 }) as fc.Arbitrary<MemberId>,
  },
  { noNullPrototype: true },
);
const change: fc.Arbitrary<ConfigurationChange> = fc.record(
  {
    transition: fc.constantFrom("auto" as const, "joint-implicit" as const, "joint-explicit" as const),
    steps: fc.array(step, { maxLength: 5 }),
    context: fc.uint8Array({ maxLength: 20 }),
  },
  { noNullPrototype: true },
);
const founders: Configuration = { ...EMPTY_CONFIGURATION, voters: [1, 2, 3] as MemberId[] };

/** Every configuration that some sequence of changes leads to. */
const configuration: fc.Arbitrary<Configuration> = fc.array(change, { maxLength: 8 }).map((changes) =>
  changes.reduce((now, next) => {
    const outcome = evaluate(now, next);
    return outcome instanceof ConfigurationError ? now : outcome;
  }, founders),
);

/** Dumb: roles by name, one step at a time, voters and learners as they are to be in the end. */
function dumbRoles(before: Configuration, steps: readonly ConfigurationStep[]): Map<MemberId, string> {
  const roles = new Map<MemberId, string>();
  for (const id of before.voters) roles.set(id, "voter");
  for (const id of before.learners) roles.set(id, "learner");
  for (const { kind, id } of steps) {
    if (kind === "remove") roles.delete(id);
    else roles.set(id, kind === "add-voter" ? "voter" : "learner");
  }
  return roles;
}

function rolesOf({ voters, learners }: Configuration): Map<MemberId, string> {
  return new Map([
    ...voters.map((id) => [id, "voter"] as const),
    ...learners.map((id) => [id, "learner"] as const),
  ]);
}

const sorted = (roles: Map<MemberId, string>): unknown => [...roles].sort(([a], [b]) => a - b);

describe("configuration changes", () => {
  it("reach what the steps say, in one joint change as in simple ones", () => {
    fc.assert(
      fc.property(configuration, fc.array(step, { minLength: 1, maxLength: 5 }), (start, steps) => {
        const from = isJoint(start) ? applyChange(start, parseChange(["leave"])) : start;
        const expected = dumbRoles(from, steps);
        const joint = evaluate(from, { transition: "joint-explicit", steps, context: new Uint8Array(0) });
        if (joint instanceof ConfigurationError) {
          assert(![...expected.values()].includes("voter"), joint.message);
          return;
        }
        assert.deepEqual(sorted(rolesOf(applyChange(joint, parseChange(["leave"])))), sorted(expected));
        // One step is a simple change; so is each on its way there, as long as a voter is left.
        let simple = from;
        for (const one of steps) {
          const next = evaluate(simple, { transition: "auto", steps: [one], context: new Uint8Array(0) });
          if (next instanceof ConfigurationError) return;
          assert(!isJoint(next), "one step moves at most one voter");
          simple = next;
        }
        assert.deepEqual(sorted(rolesOf(simple)), sorted(expected));
      }),
      { numRuns: 2_000 },
    );
  });

  it("keep quorums before and after intersecting (I7), and every configuration sound", () => {
    fc.assert(
      fc.property(configuration, change, (before, next) => {
        const after = evaluate(before, next);
        if (after instanceof ConfigurationError) {
          assert.equal(validateChange(before, next), after.message);
          assert.throws(() => applyChange(before, next), ConfigurationError);
          return;
        }
        assert.equal(describeFlaw(after), undefined);
        assert(quorumsIntersect(before, after));
      }),
      { numRuns: 1_000 },
    );
  });

  it("survive save and restore exactly (R32)", () => {
    fc.assert(
      fc.property(configuration, change, (saved, anyChange) => {
        assert.deepEqual(decodeConfiguration(encodeConfiguration(saved)), saved);
        const decoded = decodeConfigurationChange(encodeConfigurationChange(anyChange));
        assert.deepEqual({ ...decoded, context: Uint8Array.from(decoded.context) }, anyChange);
      }),
    );
  });
});

describe("configuration codec", () => {
  it("keeps ids up to 2^53 - 1 and copies no context", () => {
    const large: ConfigurationChange = {
      transition: "joint-implicit",
      steps: [{ kind: "add-learner", id: Number.MAX_SAFE_INTEGER as MemberId }],
      context: Uint8Array.of(1, 2, 3),
    };
    const data = encodeConfigurationChange(large);
    const decoded = decodeConfigurationChange(data);
    assert.deepEqual(decoded.steps, large.steps);
    assert.equal(decoded.context.buffer, data.buffer);
  });

  it("is as FORMAT.md says for the automatic leave", () => {
    const leave: ConfigurationChange = { transition: "auto", steps: [], context: new Uint8Array(0) };
    assert.deepEqual(encodeConfigurationChange(leave), Uint8Array.of(1, 0, 0, 0));
  });

  it("refuses every truncation, every left-over, unknown versions and contradictions", () => {
    const malformed = (error: unknown): boolean =>
      error instanceof ConfigurationError && error.code === "malformed";
    const data = encodeConfigurationChange(parseChange(["implicit", "v300", "l2"]));
    for (let length = 0; length < data.length; length++) {
      assert.throws(() => decodeConfigurationChange(data.subarray(0, length)), malformed);
    }
    assert.throws(() => decodeConfigurationChange(Uint8Array.of(...data, 0)), malformed);
    assert.throws(() => decodeConfigurationChange(Uint8Array.of(2, ...data.subarray(1))), malformed);
    assert.throws(() => decodeConfigurationChange(Uint8Array.of(1, 9, 0, 0)), malformed);
    const flawed: readonly Configuration[] = [
      { ...founders, voters: [2, 1] as MemberId[] },
      { ...founders, learners: [1] as MemberId[] },
      { ...founders, learnersNext: [1] as MemberId[] },
      { ...founders, autoLeave: true },
      { ...founders, voters: [0, 1] as MemberId[] },
      { ...EMPTY_CONFIGURATION, learners: [1] as MemberId[] },
    ];
    for (const one of flawed) assert.throws(() => decodeConfiguration(encodeConfiguration(one)), malformed);
    const flags = encodeConfiguration(founders);
    flags[1] = 2;
    assert.throws(() => decodeConfiguration(flags), malformed);
  });

  it("reads arbitrary bytes as a change or as malformed, nothing else", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        for (const decode of [decodeConfigurationChange, decodeConfiguration]) {
          try {
            decode(bytes);
          } catch (error) {
            assert(error instanceof ConfigurationError);
          }
        }
      }),
      { numRuns: 2_000 },
    );
  });
});
