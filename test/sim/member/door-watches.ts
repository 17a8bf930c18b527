import type { Revision, WatchEnd, WatchEvent, WatchHandle } from "@lockstep/gateway/coordinator";
import type { Dice, SimMember, TimeUs, TrueEvent } from "../contract.ts";
import type { World } from "../world.ts";

const EVERYTHING = { key: Buffer.from([0]), rangeEnd: Buffer.alloc(0) };
const PAUSE_US_MAX = 3_000_000;
/** A consumer that is full says so now and then, and rests. */
const FULL_CHANCE = 0.05;

/**
 * A consumer behind a door of one member, as somebody who watches over HTTP: it stays with its member, follower or
 * leader, through elections and installed states. The client library would move on to the leader.
 */
export class DoorWatch {
  readonly #world: World;
  readonly #member: SimMember;
  readonly #dice: Dice;
  #handle: WatchHandle | undefined;
  /** Everything up to here was delivered. */
  #covered = 0;
  #held = false;

  private constructor(world: World, member: SimMember) {
    this.#world = world;
    this.#member = member;
    this.#dice = member.process.dice.fork("door watch");
  }

  /** Watches until the member dies. */
  static open(world: World, member: SimMember): void {
    const watch = new DoorWatch(world, member);
    member.process.deliver(watch.#dice.between(0, PAUSE_US_MAX), () => watch.#begin(undefined));
  }

  #begin(startRevision: Revision | undefined): void {
    const { coordinator } = this.#member.core;
    this.#held = false;
    const made = coordinator.watch(
      {
        ...{ namespace: "default", epoch: 0, range: EVERYTHING },
        ...(startRevision === undefined ? {} : { startRevision }),
      },
      {
        events: (events, revision) => this.#events(events, revision),
        progress: (revision) => this.#progress(revision),
        end: (end) => this.#ended(end),
      },
    );
    // A joiner serves no watches before it has a state.
    if (!("createdRevision" in made)) return this.#later(undefined);
    this.#handle = made;
    this.#covered = (startRevision ?? made.createdRevision + 1) - 1;
  }

  #later(startRevision: Revision | undefined): void {
    const delayUs: TimeUs = this.#dice.between(1_000, PAUSE_US_MAX);
    this.#member.process.deliver(delayUs, () => this.#begin(startRevision));
  }

  #events(events: readonly WatchEvent[], revision: number): boolean {
    this.#world.count("watch events", events.length);
    const delivered = events.map(({ kind, kv }) => `${kind} ${text(kv.key)} at ${String(kv.modRevision)}`);
    this.#account(delivered, revision);
    if (this.#held || !this.#dice.chance(FULL_CHANCE)) return !this.#held;
    this.#held = true;
    this.#member.process.deliver(this.#dice.between(1_000, PAUSE_US_MAX), () => {
      this.#held = false;
      this.#handle?.resume();
      this.#handle?.requestProgress();
    });
    return false;
  }

  #progress(revision: number): void {
    this.#world.count("progress notices");
    if (revision > this.#covered) this.#account([], revision);
  }

  /** I9: exactly the events of the revisions after the last ones, up to `revision`. */
  #account(delivered: readonly string[], revision: number): void {
    const { truth } = this.#world.god;
    const due: string[] = [];
    for (let at = this.#covered + 1; at <= revision; at += 1) {
      for (const event of truth.at(at)?.events ?? []) due.push(describe(event, at));
    }
    const wrong = due.findIndex((event, at) => event !== delivered[at]);
    if (revision < this.#covered || wrong >= 0 || delivered.length !== due.length) {
      const at = wrong < 0 ? due.length : wrong;
      this.#world.violate(
        "I9-member",
        `a watch at ${this.#member.host} from ${String(this.#covered + 1)} to ${String(revision)}: delivered ${delivered[at] ?? "nothing more"}, due ${due[at] ?? "nothing more"}`,
      );
    }
    this.#covered = revision;
  }

  #ended(end: WatchEnd): void {
    this.#handle = undefined;
    switch (end.kind) {
      case "compacted":
        this.#world.count("watch compacted");
        return this.#later(end.compactRevision);
      case "slow-consumer":
        this.#world.count("watch slow consumers");
        if (end.resumeRevision !== this.#covered + 1) {
          this.#world.violate(
            "I9-resume",
            `a watch at ${this.#member.host} is to resume at ${String(end.resumeRevision)}, the next revision is ${String(this.#covered + 1)}`,
          );
        }
        return this.#later(end.resumeRevision);
      case "cancelled":
        return this.#later(undefined);
    }
  }
}

function describe(event: TrueEvent, revision: number): string {
  return `${event.kind} ${event.key} at ${String(revision)}`;
}

function text(key: Uint8Array): string {
  return Buffer.from(key.buffer, key.byteOffset, key.byteLength).toString("latin1");
}
