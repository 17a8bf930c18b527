/** Whatever can go wrong, at random times: the plan says what and how often, the dice say when and to whom. */
import type { Dice } from "./contract.ts";
import { corruptMiddle, corruptTail } from "./member/corruption.ts";
import { DISK_BYTES } from "./member/host.ts";
import type { SimHost } from "./member/host.ts";
import { CALM_NETWORK, drawNetworkProfile } from "./network/profile.ts";
import type { Operators } from "./operators.ts";
import { CELL_FAULTS, CLIENT_FAULTS } from "./plan.ts";
import type { ClientFault, Fault } from "./plan.ts";
import type { World } from "./world.ts";

const SECOND_US = 1_000_000;
const VOTERS_MAX = 5;
/** Not so far that an hour, after which the cell forgets idle clients, is reached. */
const WALL_JUMP_MS_MAX = 300_000;

export class Nemesis {
  readonly #world: World;
  readonly #operators: Operators;
  readonly #dice: Dice;
  #over = false;
  /** Members that are paused now. */
  readonly #paused = new Set<() => void>();

  constructor(world: World, operators: Operators) {
    this.#world = world;
    this.#operators = operators;
    this.#dice = world.dice.fork("nemesis");
  }

  start(): void {
    this.#world.network.setProfile(this.#world.plan.network);
    this.#next(CELL_FAULTS);
    this.#next(CLIENT_FAULTS);
    this.#watchOver();
  }

  /** No more faults; what is broken is mended, but not what is lost. */
  end(): void {
    const world = this.#world;
    this.#over = true;
    world.network.heal();
    world.network.setProfile(CALM_NETWORK);
    for (const resume of [...this.#paused]) resume();
    for (const host of world.hosts) {
      host.faults.mend();
      host.disk.capacityBytes = DISK_BYTES;
      if (host.state === "down") this.#restart(host);
    }
  }

  #next(kinds: readonly Fault[]): void {
    const pauseUs = this.#dice.exponential(this.#world.plan.faultEverySeconds * SECOND_US);
    this.#world.loop.in(pauseUs + 1, () => {
      if (this.#over) return;
      const fault = this.#draw(kinds);
      if (fault !== undefined) this.#strike(fault);
      this.#next(kinds);
    });
  }

  /** As any supervisor: a member that stopped itself is started again after a while, a lost one is replaced. */
  #watchOver(): void {
    this.#world.loop.in(this.#dice.between(1, 4) * SECOND_US, () => {
      for (const host of this.#world.hosts) {
        if (host.state === "down" && this.#dice.chance(0.5)) this.#restart(host);
      }
      if (this.#over) return this.#watchOver();
      const lost = this.#world.hosts.find(({ state }) => state === "lost");
      if (lost !== undefined && !this.#operators.busy) this.#background(this.#operators.replace(lost.name));
      this.#watchOver();
    });
  }

  #draw(kinds: readonly Fault[]): Fault | undefined {
    const { faults } = this.#world.plan;
    let ticket = this.#dice.random() * kinds.reduce((sum, fault) => sum + faults[fault], 0);
    return kinds.find((fault) => (ticket -= faults[fault]) < 0);
  }

  #strike(fault: Fault): void {
    const world = this.#world;
    world.trace("nemesis", () => fault);
    const members = world.running();
    const victim = members.length === 0 ? undefined : this.#dice.pick(members);
    switch (fault) {
      case "partition":
        return this.#partition();
      case "network":
        return this.#weather();
      case "transfer":
        return this.#background(this.#operators.transfer());
      case "add-member":
        return this.#grow();
      case "isolate-leader":
        return this.#isolateLeader();
      case "pause-client":
      case "kill-client":
      case "cut-client":
      case "squeeze-client":
        return this.#troubleClient(fault);
      case "power-cut-everywhere":
        for (const host of members) this.#crash(host, "power cut");
        return;
      default:
        if (victim !== undefined) this.#harm(victim, fault);
    }
  }

  #harm(
    host: SimHost,
    fault: Exclude<
      Fault,
      | "partition"
      | "network"
      | "transfer"
      | "add-member"
      | "isolate-leader"
      | ClientFault
      | "power-cut-everywhere"
    >,
  ): void {
    const world = this.#world;
    switch (fault) {
      case "kill":
        return this.#crash(host, "kill");
      case "power-cut":
        return this.#crash(host, "power cut");
      case "restart":
        return this.#background(host.stop());
      case "pause":
      case "pause-leader":
        return this.#pause((fault === "pause" ? undefined : this.#leader()) ?? host);
      case "one-way": {
        const other = this.#dice.pick(world.hosts);
        if (other !== host) world.network.cutOneWay(host.name, other.name);
        return this.#healLater();
      }
      case "slow-disk":
        host.faults.stall(
          world.loop.nowUs + this.#dice.between(1, 20) * SECOND_US,
          this.#dice.pick([50_000, 500_000, 5 * SECOND_US, 30 * SECOND_US]),
        );
        return world.count("slow disks");
      case "failed-sync":
        host.faults.failing = this.#dice.between(1, 3);
        return;
      case "low-space":
        return this.#fill(host, this.#dice.between(64, 1_024) * 1_024);
      case "full-disk":
        return this.#fill(host, 0);
      case "wipe":
        if (this.#mayLose(host)) this.#lose(host);
        return;
      case "flip-middle":
        if (this.#mayLose(host)) this.#damage(host, "middle");
        return;
      case "flip-tail":
        if (this.#mayLose(host)) this.#damage(host, "tail");
        return;
      case "wall-jump":
        host.process?.jumpWall(this.#dice.between(-WALL_JUMP_MS_MAX, WALL_JUMP_MS_MAX));
        return world.count("clock jumps");
      case "remove-member":
        return this.#shrink(host);
      case "replace-member":
        if (this.#isSound()) this.#background(this.#operators.replace(host.name));
        return;
    }
  }

  #crash(host: SimHost, how: "kill" | "power cut"): void {
    if (!host.isUp) return;
    this.#world.count(how === "kill" ? "crashes" : "power cuts");
    if (how === "kill") host.kill();
    else host.cutPower();
    const downUs = this.#dice.pick([50_000, SECOND_US, 5 * SECOND_US, 15 * SECOND_US]) * this.#dice.random();
    this.#world.loop.in(downUs, () => {
      if (host.state === "down") this.#restart(host);
    });
  }

  #restart(host: SimHost): void {
    void host.start({ kind: "join", targets: this.#world.joinTargets(host) });
  }

  #pause(host: SimHost): void {
    const { process } = host;
    if (process === undefined) return;
    process.pause();
    this.#world.count("pauses");
    this.#world.trace(host.name, () => "paused");
    const resume = (): void => {
      this.#paused.delete(resume);
      this.#world.trace(host.name, () => "resumed");
      process.resume();
    };
    this.#paused.add(resume);
    this.#world.loop.in(this.#dice.exponential(6 * SECOND_US), resume);
  }

  #partition(): void {
    const { network } = this.#world;
    const [here, there]: [string[], string[]] = [[], []];
    for (const { name } of this.#world.hosts) (this.#dice.chance(0.5) ? here : there).push(name);
    for (const name of this.#world.clients.keys()) {
      if (this.#dice.chance(0.5)) (this.#dice.chance(0.5) ? here : there).push(name);
    }
    network.partition([here, there]);
    this.#healLater();
  }

  #isolateLeader(): void {
    const leader = this.#leader();
    if (leader === undefined) return;
    const { network, hosts } = this.#world;
    if (this.#dice.chance(0.5)) {
      // Cut off from the members alone: clients go on to ask it.
      network.partition([
        [leader.name],
        hosts.map(({ name }) => name).filter((name) => name !== leader.name),
      ]);
    } else {
      network.isolate(leader.name, this.#dice.pick(["both", "in", "out"]));
    }
    this.#healLater();
  }

  #leader(): SimHost | undefined {
    return this.#world.running().find(({ member }) => member?.core.replica.isLeader === true);
  }

  #healLater(): void {
    this.#world.loop.in(this.#dice.exponential(8 * SECOND_US), () => {
      if (!this.#over) this.#world.network.heal();
    });
  }

  #weather(): void {
    const { network, plan } = this.#world;
    network.setProfile(drawNetworkProfile(this.#dice, this.#dice.random() * plan.wildness));
  }

  /** @param leftBytes what is still free */
  #fill(host: SimHost, leftBytes: number): void {
    host.faults.excuses = true;
    host.disk.capacityBytes = host.disk.usedBytes + leftBytes;
    this.#world.count("full disks");
    this.#world.loop.in(this.#dice.between(1, 10) * SECOND_US, () => {
      host.disk.capacityBytes = DISK_BYTES;
    });
  }

  /** Whether the cell can afford to lose this disk: everybody else is sound, and a majority remains. */
  #mayLose(host: SimHost): boolean {
    const world = this.#world;
    if (this.#operators.busy || !this.#isSound()) return false;
    const leader = this.#leader()?.member?.core.replica.parts.state.membership;
    if (leader === undefined || leader.configuration.outgoing.length > 0) return false;
    // Learners do not count: of two voters none can be spared.
    const { voters } = leader.configuration;
    const hosts = leader.members.filter(({ id }) => voters.includes(id)).map(({ name }) => world.host(name));
    return voters.length >= 3 && hosts.every((other) => other === host || other?.state === "running");
  }

  /** No disk is lost: who takes a healthy member out of a cell with a sick one may take its majority. */
  #isSound(): boolean {
    return this.#world.hosts.every(({ state, damaged }) => state !== "lost" && damaged === undefined);
  }

  #lose(host: SimHost): void {
    host.wipe();
    this.#world.count("wiped disks");
  }

  #damage(host: SimHost, where: "middle" | "tail"): void {
    host.kill();
    const flip = where === "middle" ? corruptMiddle : corruptTail;
    if (flip(host.disk, this.#dice)) {
      this.#world.count("corrupted disks");
      host.damaged = where;
    }
    this.#restart(host);
  }

  #grow(): void {
    const voters = this.#world.hosts.filter(({ state }) => state !== "retired").length;
    if (voters < VOTERS_MAX) this.#background(this.#operators.grow());
  }

  #shrink(host: SimHost): void {
    const voters = this.#world.hosts.filter(({ state }) => state !== "retired").length;
    if (voters > 1 && this.#isSound()) this.#background(this.#operators.shrink(host.name));
  }

  #troubleClient(fault: ClientFault): void {
    const world = this.#world;
    if (world.clients.size === 0) return;
    const [name, process] = this.#dice.pick([...world.clients]);
    if (!process.alive) return;
    if (fault === "kill-client") return world.killClient(name);
    if (fault === "squeeze-client") return this.#squeeze(name);
    if (fault === "cut-client") {
      world.network.isolate(name, this.#dice.pick(["both", "in", "out"]));
      return this.#healLater();
    }
    process.pause();
    world.count("pauses");
    world.trace(name, () => "paused");
    const resume = (): void => {
      this.#paused.delete(resume);
      process.resume();
    };
    this.#paused.add(resume);
    world.loop.in(this.#dice.exponential(4 * SECOND_US), resume);
  }

  /** What it is told comes late, and right after that it is not heard any more: old promises look like new ones. */
  #squeeze(client: string): void {
    const { network, loop } = this.#world;
    network.isolate(client, "in");
    loop.in(this.#dice.between(1 * SECOND_US, 4 * SECOND_US), () => {
      if (this.#over) return;
      network.heal();
      loop.in(this.#dice.between(1_000, 300_000), () => {
        if (this.#over) return;
        network.isolate(client, "out");
        this.#healLater();
      });
    });
  }

  #background(work: Promise<void>): void {
    work.catch((error: unknown) => {
      const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
      if (this.#world.violation === undefined) this.#world.violate("operators", text);
    });
  }
}
