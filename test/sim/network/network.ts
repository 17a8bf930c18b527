/**
 * The network of one world: who reaches whom, and what becomes of what is sent. Two kinds of traffic: datagrams (lost,
 * doubled, overtaken, late) and streams (in order and whole until they break, late while the way is blocked).
 */
import type { Dice, Reporter, Scheduler, SimProcess } from "../contract.ts";
import type { NetworkProfile } from "./profile.ts";
import { StreamEnd, joinEnds } from "./stream.ts";
import type { AnyEnd, StreamHandler } from "./stream.ts";

export interface NetworkParts {
  readonly scheduler: Scheduler;
  readonly dice: Dice;
  readonly reporter: Reporter;
  readonly profile: NetworkProfile;
}

/** One way between two hosts. */
interface Way {
  /** Cut by itself, whatever else is. */
  cut: boolean;
  /** Arrival of the last datagram that kept its turn. */
  lastArrivalUs: number;
  /** Arrival of one that was held back and not overtaken yet; 0: none. */
  heldUntilUs: number;
}

export interface Host {
  readonly name: string;
  readonly index: number;
  /** 0: in no group, reaches every group. */
  group: number;
  deaf: boolean;
  mute: boolean;
  readonly ways: (Way | undefined)[];
}

const NONE: readonly number[] = [];
/** What lost segments of a stream cost: the first retransmission, and the longest pause between two. */
const RETRANSMISSION_US = 200_000;
const STREAM_DELAY_US_MAX = 20_000_000;
/** A stream that was held by a partition moves again within this after the heal. */
const RECOVERY_US_MAX = 1_000_000;

export class SimNetwork {
  readonly scheduler: Scheduler;
  readonly reporter: Reporter;
  #profile: NetworkProfile;
  readonly #dice: Dice;
  readonly #hosts = new Map<string, Host>();
  readonly #groups: Host[] = [];
  /** Ends with something to send that the way does not let through. In order of insertion. */
  readonly #stalled = new Set<AnyEnd>();
  readonly #ends = new Map<SimProcess, Set<AnyEnd>>();

  constructor(parts: NetworkParts) {
    this.scheduler = parts.scheduler;
    this.reporter = parts.reporter;
    this.#dice = parts.dice;
    this.#profile = parts.profile;
  }

  get profile(): NetworkProfile {
    return this.#profile;
  }

  /** For what is sent from now on; how long connections live is drawn anew for those that stand. */
  setProfile(profile: NetworkProfile): void {
    this.#profile = profile;
    for (const ends of this.#ends.values()) {
      for (const end of ends) if (end.limitsLife) this.#limitLife(end);
    }
    this.reporter.trace("network", () => `profile ${JSON.stringify(profile)}`);
  }

  /** Hosts of different groups do not reach each other; a host in no group reaches all. Replaces the last partition. */
  partition(groups: readonly (readonly string[])[]): void {
    for (const host of this.#groups.splice(0)) host.group = 0;
    groups.forEach((names, number) => {
      for (const name of names) {
        const host = this.host(name);
        host.group = number + 1;
        this.#groups.push(host);
      }
    });
    this.reporter.count("partitions");
    this.reporter.trace("network", () => `partition ${groups.map((g) => g.join(",")).join(" | ")}`);
    this.#wayChanged();
  }

  /** Nothing that `from` sends reaches `to`; the other way is not touched. */
  cutOneWay(from: string, to: string): void {
    way(this.host(from), this.host(to)).cut = true;
    this.reporter.count("one-way partitions");
    this.reporter.trace("network", () => `cut ${from} -> ${to}`);
    this.#wayChanged();
  }

  /** From and to everybody: `in`: it hears nothing, `out`: nobody hears it. */
  isolate(name: string, direction: "both" | "in" | "out"): void {
    const host = this.host(name);
    if (direction !== "out") host.deaf = true;
    if (direction !== "in") host.mute = true;
    this.reporter.count(direction === "both" ? "partitions" : "one-way partitions");
    this.reporter.trace("network", () => `isolate ${name} ${direction}`);
    this.#wayChanged();
  }

  /** Ends every partition, cut and isolation. Connections that stood and were not given up meanwhile go on. */
  heal(): void {
    for (const host of this.#groups.splice(0)) host.group = 0;
    for (const host of this.#hosts.values()) {
      host.deaf = false;
      host.mute = false;
      for (const each of host.ways) if (each !== undefined) each.cut = false;
    }
    this.reporter.trace("network", () => "heal");
    this.#wayChanged();
  }

  /** Whether what `from` sends now does not reach `to`. */
  blocked(from: string, to: string): boolean {
    return this.isBlocked(this.host(from), this.host(to));
  }

  isBlocked(from: Host, to: Host): boolean {
    if (from === to) return false;
    if (from.mute || to.deaf) return true;
    if (from.group !== to.group && from.group !== 0 && to.group !== 0) return true;
    return from.ways[to.index]?.cut === true;
  }

  /** After how many microseconds a datagram arrives; none: lost, two: doubled. */
  datagram(from: string, to: string): readonly number[] {
    return this.datagramBetween(this.host(from), this.host(to));
  }

  datagramBetween(from: Host, to: Host): readonly number[] {
    if (this.isBlocked(from, to)) return NONE;
    const { loss, duplication, reordering, longDelay } = this.#profile;
    const troubled = loss + duplication + reordering + longDelay;
    const fate = troubled > 0 ? this.#dice.random() : 1;
    const { nowUs } = this.scheduler;
    const line = way(from, to);
    if (fate < loss) {
      this.#tell("messages lost", from, to);
      return NONE;
    }
    if (fate >= troubled || fate < loss + duplication) {
      const first = this.#inTurn(line, nowUs);
      if (fate >= troubled) return [first];
      this.#tell("messages doubled", from, to);
      return [first, this.#baseUs() + this.#dice.between(0, this.#profile.reorderingUsMax)];
    }
    const extraUsMax =
      fate < loss + duplication + reordering ? this.#profile.reorderingUsMax : this.#profile.longDelayUsMax;
    const late = this.#baseUs() + this.#dice.between(0, extraUsMax);
    line.heldUntilUs = Math.max(line.heldUntilUs, nowUs + late);
    this.reporter.trace("network", () => `${from.name} -> ${to.name}: a message is held for ${late} us`);
    return [late];
  }

  /** How long a segment of a stream takes, when the way is free. */
  streamDelayUs(): number {
    const { loss, longDelay, longDelayUsMax } = this.#profile;
    const base = this.#baseUs();
    const troubled = loss + longDelay;
    if (troubled === 0) return base;
    const fate = this.#dice.random();
    if (fate >= troubled) return base;
    const extraUsMax = fate < loss ? RETRANSMISSION_US * 2 : Math.min(longDelayUsMax, STREAM_DELAY_US_MAX);
    return base + RETRANSMISSION_US + this.#dice.between(0, extraUsMax);
  }

  /** One way of a datagram without faults, for what only has to take its time. */
  delayUs(): number {
    return this.#baseUs();
  }

  /**
   * A connection whose ends both processes hold from now on. The caller has looked whether it can be made: see
   * {@link blocked}. It breaks by itself when the profile says so, and with the death of either process.
   */
  connect<Up, Down>(
    dialler: { readonly process: SimProcess; readonly handler: StreamHandler<Down> },
    acceptor: { readonly process: SimProcess; readonly handler: StreamHandler<Up> },
  ): { readonly dialled: StreamEnd<Up, Down>; readonly accepted: StreamEnd<Down, Up> } {
    const dialled = new StreamEnd<Up, Down>(this, dialler.process, dialler.handler);
    const accepted = new StreamEnd<Down, Up>(this, acceptor.process, acceptor.handler);
    joinEnds(dialled, accepted);
    dialled.limitsLife = true;
    this.#limitLife(dialled);
    return { dialled, accepted };
  }

  /** Resets every connection between two hosts. @returns how many there were. */
  breakConnections(one: string, other: string): number {
    let broken = 0;
    for (const ends of [...this.#ends.values()]) {
      for (const end of [...ends]) {
        if (end.process.host !== one || end.peer.process.host !== other) continue;
        end.break();
        broken += 1;
      }
    }
    return broken;
  }

  // ---- for the ends of streams ----

  host(name: string): Host {
    const known = this.#hosts.get(name);
    if (known !== undefined) return known;
    const host = { name, index: this.#hosts.size, group: 0, deaf: false, mute: false, ways: [] };
    this.#hosts.set(name, host);
    return host;
  }

  /** `end` wants to hear through {@link StreamEnd.wayMayBeFree} when the way may be free again. */
  stall(end: AnyEnd): void {
    this.#stalled.add(end);
  }

  recoveryUs(): number {
    return this.#baseUs() + this.#dice.between(0, RECOVERY_US_MAX);
  }

  opened(end: AnyEnd): void {
    const { process } = end;
    let ends = this.#ends.get(process);
    if (ends === undefined) {
      ends = new Set();
      this.#ends.set(process, ends);
      process.onKill(() => this.#killed(process));
    }
    ends.add(end);
  }

  /** Nothing is left to send. */
  closed(end: AnyEnd): void {
    this.#ends.get(end.process)?.delete(end);
  }

  unstall(end: AnyEnd): void {
    this.#stalled.delete(end);
  }

  /** The operating system closes what the process had open: its peers hear of it when they can be reached. */
  #killed(process: SimProcess): void {
    const ends = this.#ends.get(process);
    this.#ends.delete(process);
    for (const end of ends ?? []) end.cut();
  }

  #limitLife(end: AnyEnd): void {
    end.cancelLife?.();
    end.cancelLife = undefined;
    const { connectionLifeUsMean } = this.#profile;
    if (connectionLifeUsMean === 0) return;
    const lifeUs = Math.ceil(this.#dice.exponential(connectionLifeUsMean));
    end.cancelLife = this.scheduler.in(lifeUs, () => {
      // What cannot reach an end cannot reset it either: later, then.
      if (end.reachable) end.break();
      else this.#limitLife(end);
    });
  }

  #wayChanged(): void {
    for (const end of [...this.#stalled]) {
      if (end.wayMayBeFree()) this.#stalled.delete(end);
    }
  }

  /** Whole, as true time is. */
  #baseUs(): number {
    const { delayUsMin, delayUsMax } = this.#profile;
    return Math.round(delayUsMin + this.#dice.random() * (delayUsMax - delayUsMin));
  }

  /** What is not held back keeps its order, as on one route. */
  #inTurn(line: Way, nowUs: number): number {
    const arrivalUs = Math.max(nowUs + this.#baseUs(), line.lastArrivalUs);
    line.lastArrivalUs = arrivalUs;
    if (line.heldUntilUs > 0) {
      if (line.heldUntilUs > arrivalUs) this.reporter.count("messages reordered");
      line.heldUntilUs = 0;
    }
    return arrivalUs - nowUs;
  }

  #tell(what: "messages lost" | "messages doubled", from: Host, to: Host): void {
    this.reporter.count(what);
    this.reporter.trace("network", () => `${from.name} -> ${to.name}: ${what}`);
  }
}

function way(from: Host, to: Host): Way {
  return (from.ways[to.index] ??= { cut: false, lastArrivalUs: 0, heldUntilUs: 0 });
}
