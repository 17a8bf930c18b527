import type { TorturedCell } from "../cell/cell.ts";
import type { TorturedMember } from "../cell/member.ts";
import type { Dice } from "../dice.ts";
import type { Findings } from "../findings.ts";
import { pause } from "../workload/actor.ts";

/** Faults of one lane follow each other; the lanes run side by side. */
export type Lane = "trouble" | "membership";

export interface Fault {
  readonly kind: string;
  readonly lane: Lane;
  /** How often it is drawn, beside the others of its lane. */
  readonly weight: number;
  /** For `--help`. */
  readonly about: string;
  /** Runs it from beginning to end: whatever it did to the cell is undone when it resolves. */
  readonly run: (scene: Scene) => Promise<void>;
}

/** What a fault has to work with. */
export class Scene {
  readonly cell: TorturedCell;
  readonly dice: Dice;
  readonly findings: Findings;
  readonly stopping: AbortSignal;
  readonly #kind: string;
  readonly #claims: Set<TorturedMember>;
  readonly #own = new Set<TorturedMember>();
  readonly #undo: (() => void)[] = [];

  constructor(parts: {
    readonly cell: TorturedCell;
    readonly dice: Dice;
    readonly findings: Findings;
    readonly stopping: AbortSignal;
    readonly kind: string;
    /** Members that are somebody's victim now; shared by all lanes. */
    readonly claims: Set<TorturedMember>;
  }) {
    this.cell = parts.cell;
    this.dice = parts.dice;
    this.findings = parts.findings;
    this.stopping = parts.stopping;
    this.#kind = parts.kind;
    this.#claims = parts.claims;
  }

  /** Tells what happens, as it happens; the first time a fault says something it counts as one that took place. */
  say(text: string): void {
    if (!this.#told) this.findings.count(`fault: ${this.#kind}`);
    this.#told = true;
    this.findings.say(`${this.#kind}: ${text}`);
  }

  #told = false;

  /** Members that nobody else is at work on. */
  get free(): readonly TorturedMember[] {
    return this.cell.members.filter((member) => member.serving && !this.#claims.has(member));
  }

  /** Takes a member for this fault: in half of the cases the leader. undefined: there is none to be had. */
  async victim(options: { readonly leaderChance?: number } = {}): Promise<TorturedMember | undefined> {
    const wantsLeader = this.dice.chance(options.leaderChance ?? 0.5);
    const roll = this.dice.random();
    const leader = wantsLeader ? await this.cell.leaderNow() : undefined;
    const { free } = this;
    const chosen =
      leader !== undefined && free.includes(leader) ? leader : free[Math.floor(roll * free.length)];
    if (chosen !== undefined) this.claim(chosen);
    return chosen;
  }

  /** Takes everybody who can be had, once the others' victims are free again or `waitMs` have passed. */
  async everybody(waitMs = 15_000): Promise<readonly TorturedMember[]> {
    const deadline = performance.now() + waitMs;
    while (this.#claims.size > 0 && performance.now() < deadline && !this.stopping.aborted)
      await this.wait(100);
    const { free } = this;
    for (const member of free) this.claim(member);
    return free;
  }

  claim(member: TorturedMember): void {
    this.#claims.add(member);
    this.#own.add(member);
  }

  /** A member is not meant to be well until the fault ends. */
  impair(member: TorturedMember): void {
    this.#undo.push(this.cell.health.impair(member.name));
  }

  /** No write can be expected until the fault ends. */
  impairCell(): void {
    this.#undo.push(this.cell.health.impairCell());
  }

  /** Kept for the end of the fault, also when it fails. */
  onEnd(undo: () => void): void {
    this.#undo.push(undo);
  }

  /** A while, cut short when the torture ends. */
  wait(ms: number): Promise<void> {
    return pause(this.stopping, ms);
  }

  /** Starts members that are down and waits until they serve: that they come back is part of what is tested. */
  async revive(members: readonly TorturedMember[]): Promise<void> {
    for (const member of members) member.start();
    await Promise.all(
      members.map(async (member) => {
        try {
          await member.untilServing();
        } catch (error) {
          this.findings.violation(
            "members come back",
            `${member.name} after ${this.#kind}: ${error instanceof Error ? error.message : String(error)}`,
          );
        }
      }),
    );
  }

  end(): void {
    for (const undo of this.#undo.splice(0).reverse()) undo();
    for (const member of this.#own) this.#claims.delete(member);
  }
}

/** For lines: `m1, m2`. */
export function names(members: readonly TorturedMember[]): string {
  return members.map(({ name }) => name).join(", ");
}

/** For lines: `20 ms` or `1.3 s`. */
export function seconds(ms: number): string {
  if (Math.abs(ms) < 1_000) return `${String(ms)} ms`;
  return `${(ms / 1000).toFixed(1)} s`;
}
