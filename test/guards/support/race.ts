// Writers with old and new tokens, all at once: the order in which a resource accepted them is the verdict.
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { Dice } from "../../torture/dice.ts";

const SEED_MAX = 2 ** 31;

/** The seed of this run, printed with what replays its choices; which writer comes first is the machine's to say. */
export function raceSeed(file: string, say: (line: string) => void): number {
  const given = process.env["LOCKSTEP_GUARD_SEED"];
  const seed = given === undefined ? randomInt(SEED_MAX) : Number(given);
  say(`seed ${String(seed)}; again: LOCKSTEP_GUARD_SEED=${String(seed)} node --test test/guards/${file}`);
  return seed;
}

export interface RaceOptions {
  readonly seed: number;
  readonly writers: number;
  readonly writesEach: number;
  /** One guarded write. False: the token was refused. Anything else that goes wrong is thrown. */
  readonly write: (writer: number, token: number, dice: Dice) => Promise<boolean>;
}

export interface RaceResult {
  readonly accepted: number;
  readonly refused: number;
  /** The largest token that was given out. */
  readonly lastToken: number;
}

/**
 * Ownership passes from writer to writer as the dice have it: each takes a new, larger token now and then, and otherwise
 * goes on with the one it has, like a holder that has not noticed.
 */
export async function race(options: RaceOptions): Promise<RaceResult> {
  let lastToken = 0;
  let accepted = 0;
  let refused = 0;
  const writer = async (index: number): Promise<void> => {
    const dice = new Dice(`${String(options.seed)}/${String(index)}`);
    let token = (lastToken += 1);
    for (let count = 0; count < options.writesEach; count += 1) {
      if (dice.chance(0.25)) token = lastToken += 1;
      if (await options.write(index, token, dice)) {
        accepted += 1;
      } else {
        refused += 1;
        // Some believe it, others go on.
        if (dice.chance(0.7)) token = lastToken += 1;
      }
    }
  };
  await Promise.all(Array.from({ length: options.writers }, (_, index) => writer(index)));
  return { accepted, refused, lastToken };
}

/** How many times a token follows a larger one. */
export function decreases(tokens: readonly number[]): number {
  let largest = 0;
  let count = 0;
  for (const token of tokens) {
    if (token < largest) count += 1;
    else largest = token;
  }
  return count;
}

/** The verdict over a race with the guard on: it must have had something to refuse, too. */
export function assertGuarded(result: RaceResult, tokens: readonly number[]): void {
  assert.equal(tokens.length, result.accepted, "every accepted write is there, and nothing else");
  assert(result.accepted > 0 && result.refused > 0, `no race: ${JSON.stringify(result)}`);
  assert(new Set(tokens).size > 1, "ownership never passed on");
  assert.equal(decreases(tokens), 0, `a smaller token after a larger one: ${tokens.join(" ")}`);
}
