/** One simulated world: its time, its network, its hosts and its clients, and who watches over them. */
import { crc32 } from "node:zlib";
import { connect } from "@lockstep/client";
import type { ActorContext, CoverageKey, Dice, Reporter, SimClient, TimeUs } from "./contract.ts";
import { emptyCoverage } from "./coverage.ts";
import type { Coverage } from "./coverage.ts";
import { God } from "./god/god.ts";
import { SeededDice } from "./kernel/dice.ts";
import { EventLoop } from "./kernel/event-loop.ts";
import { KernelProcess, runtimeOf } from "./kernel/process.ts";
import type { OpenAdmin } from "./member/admin-calls.ts";
import { SimHost } from "./member/host.ts";
import { createClientTransport } from "./network/client-transport.ts";
import type { OpenDoor } from "./network/client-transport.ts";
import { SimNetwork } from "./network/network.ts";
import { SimPeerNet } from "./network/peer-transport.ts";
import { CALM_NETWORK } from "./network/profile.ts";
import type { Plan } from "./plan.ts";
import { createWorkload } from "./workload/workload.ts";
import type { Workload } from "./workload/workload.ts";

/** A law was broken. Thrown to end what happens; the first one is also kept, should somebody swallow it. */
export class Violation extends Error {
  override readonly name = "Violation";
  readonly law: string;

  constructor(law: string, text: string) {
    super(`${law}: ${text}`);
    this.law = law;
  }
}

export interface WorldOptions {
  readonly plan: Plan;
  /** One line of the trace: true time in seconds, who, what. */
  readonly onTrace?: (line: string) => void;
}

export class World {
  readonly plan: Plan;
  readonly loop: EventLoop = new EventLoop();
  readonly dice: Dice;
  readonly coverage: Coverage = emptyCoverage();
  readonly reporter: Reporter;
  readonly network: SimNetwork;
  readonly peers: SimPeerNet;
  readonly god: God;
  readonly workload: Workload;
  readonly hosts: SimHost[] = [];
  /** Client processes that are in use, by host. */
  readonly clients: Map<string, KernelProcess> = new Map<string, KernelProcess>();
  violation: Violation | undefined;
  /** Actors are to come to an end. */
  stopping = false;
  readonly #onTrace: ((line: string) => void) | undefined;
  readonly #clockDice: Dice;
  /** The first leader of each term, in order of the terms. */
  readonly #elections: { readonly term: number; readonly atUs: TimeUs }[] = [];
  /** Those that have not come to an end. */
  readonly #actors = new Set<string>();
  /** CRC-32 chain over every revision and every process's dice: what a history comes down to. */
  #fingerprint = 0;

  constructor(options: WorldOptions) {
    const { plan } = options;
    this.plan = plan;
    this.#onTrace = options.onTrace;
    this.dice = new SeededDice(plan.seed);
    this.#clockDice = this.dice.fork("clocks");
    this.reporter = {
      violation: (law, text) => this.violate(law, text),
      count: (what, by = 1) => {
        this.coverage[what] += by;
      },
      trace: (source, text) => this.trace(source, text),
    };
    const { loop, reporter } = this;
    this.network = new SimNetwork({
      ...{ scheduler: loop, reporter, profile: CALM_NETWORK },
      dice: this.dice.fork("network"),
    });
    this.peers = new SimPeerNet(this.network);
    this.god = new God({
      ...{ reporter, scheduler: loop },
      bounds: {
        watchPendingBytesMax: 256 * 1024 * 1024 + plan.member.watchPendingBytesMax,
        commandsPendingMax: plan.member.admission.commandsPendingMax,
      },
    });
    this.god.truth.onEntry((_entry, { outcomes }) => {
      for (const outcome of outcomes) if (outcome.ok && outcome.replayed) this.count("replayed answers");
    });
    this.workload = createWorkload({
      ...{ plan: plan.workload, truth: this.god.truth, reporter, scheduler: loop },
      driftMax: 2 * plan.driftMax,
      retained: () => this.god.truth.compactRevision,
    });
  }

  violate(law: string, text: string): never {
    const violation = new Violation(law, text);
    this.violation ??= violation;
    this.trace("law", () => violation.message);
    throw violation;
  }

  /** Also part of the fingerprint: what is told is the same in every run of a seed. */
  trace(source: string, text: () => string): void {
    this.#fingerprint = crc32(`${String(this.loop.nowUs)} ${source}`, this.#fingerprint);
    if (this.#onTrace === undefined) return;
    this.#onTrace(`${(this.loop.nowUs / 1e6).toFixed(6).padStart(12)} ${source.padEnd(10)} ${text()}`);
  }

  count(what: CoverageKey, by: number = 1): void {
    this.coverage[what] += by;
  }

  newProcess(host: string, label: string): KernelProcess {
    const { driftMax, wallOffsetMsMax } = this.plan;
    return new KernelProcess({
      ...{ host, scheduler: this.loop, dice: this.dice.fork(label) },
      rate: 1 + (this.#clockDice.random() * 2 - 1) * driftMax,
      wallOffsetMs: Math.round((this.#clockDice.random() * 2 - 1) * wallOffsetMsMax),
    });
  }

  addHost(): SimHost {
    const host = new SimHost(this, `m${String(this.hosts.length + 1)}`);
    this.hosts.push(host);
    return host;
  }

  host(name: string): SimHost | undefined {
    return this.hosts.find((host) => host.name === name);
  }

  running(): readonly SimHost[] {
    return this.hosts.filter((host) => host.member !== undefined);
  }

  adminAt(address: string): OpenAdmin | undefined {
    return this.host(address.split(":")[0] ?? "")?.admin;
  }

  doorAt(address: string): OpenDoor | undefined {
    return this.host(address.split(":")[0] ?? "")?.member;
  }

  /** Admin addresses of everybody that may be a member, for one that wants in. */
  joinTargets(joiner: SimHost): readonly string[] {
    return this.hosts
      .filter((host) => host !== joiner && host.state !== "retired" && host.state !== "lost")
      .map((host) => host.addresses.admin);
  }

  /** A member told something. */
  memberLogged(message: string, fields: { readonly role?: unknown; readonly term?: unknown }): void {
    if (message === "streaming the state to a member") this.count("snapshots sent");
    if (message === "the disk stalls: handing leadership over") this.count("stalled leaders");
    if (message !== "role changed" || fields.role !== "leader") return;
    const term = Number(fields.term);
    if (term > (this.#elections.at(-1)?.term ?? 0)) this.#elections.push({ term, atUs: this.loop.nowUs });
  }

  /** The first election of a later term than this one. */
  electedAfter(term: number): { readonly term: number; readonly atUs: TimeUs } | undefined {
    return this.#elections.find((election) => election.term > term);
  }

  killClient(host: string): void {
    const process = this.clients.get(host);
    if (process?.alive !== true) return;
    this.trace(host, () => "killed");
    process.kill();
    this.workload.processKilled(host);
  }

  /** I13: why the cell is not at rest. */
  unrest(): string | undefined {
    const members = this.running().flatMap(({ member }) => (member === undefined ? [] : [member]));
    const leader = members.find(({ core }) => core.replica.isLeader);
    if (leader === undefined) return "nobody leads";
    const expected = leader.core.replica.parts.state.membership.members.map(({ name }) => name);
    return this.god.settled(members, expected);
  }

  get actorsLeft(): number {
    return this.#actors.size;
  }

  actorsDoing(): string {
    return [...this.#actors].join(", ");
  }

  fingerprint(): string {
    return this.#fingerprint.toString(16).padStart(8, "0");
  }

  /** Runs an actor for as long as the world wants work, in one process after the other. */
  startActor(name: string, run: (context: ActorContext) => Promise<void>): void {
    const host = `c${String(this.clients.size + 1)}`;
    const dice = this.dice.fork(`actor ${name}`);
    let lives = 0;
    this.#actors.add(name);
    const begin = (): void => {
      const process = this.#clientProcess(host, `client ${host}.${String((lives += 1))}`);
      process.onKill(() => {
        if (this.stopping) this.#actors.delete(name);
        else this.loop.in(dice.between(100_000, 3_000_000), begin);
      });
      run(this.#context({ name, host, dice: dice.fork(`life ${String(lives)}`) })).then(
        () => void this.#actors.delete(name),
        (error: unknown) => {
          if (error instanceof Violation) return;
          const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
          this.violation ??= new Violation("actor", `${name}: ${text}`);
        },
      );
    };
    begin();
  }

  #context({
    name,
    host,
    dice,
  }: {
    readonly name: string;
    readonly host: string;
    readonly dice: Dice;
  }): ActorContext {
    const isStopping = (): boolean => this.stopping;
    const life = this.clients.get(host);
    return {
      ...{ name, dice, scheduler: this.loop, truth: this.god.truth, reporter: this.reporter },
      connect: async (options = {}): Promise<SimClient> => {
        const process = this.clients.get(host) ?? life;
        if (process === undefined) throw new Error(`no process on ${host}`);
        const running = this.running().map((member) => member.addresses.client);
        const known = running.length > 0 ? running : this.hosts.map((member) => member.addresses.client);
        const endpoints = options.pinned === true ? [dice.pick(known)] : known;
        const reaches = (address: string): boolean => options.pinned !== true || endpoints.includes(address);
        const transport = createClientTransport(process, this.network, (address) =>
          reaches(address) ? this.#serviceAt(address) : undefined,
        );
        const client = await connect({
          ...{ transport, runtime: runtimeOf(process), endpoints },
          deadlineMs: this.plan.workload.deadlineMs,
        });
        return { process, client };
      },
      sleep: (ms) => new Promise((resolve) => void (this.clients.get(host) ?? life)?.after(ms, resolve)),
      get stopping() {
        return isStopping();
      },
    };
  }

  /** Names of members that are gone lead to one that is there, as those of a service do: a client may know no others. */
  #serviceAt(address: string): OpenDoor | undefined {
    const state = this.host(address.split(":")[0] ?? "")?.state;
    if (state !== "retired" && state !== "lost") return this.doorAt(address);
    return this.running()[0]?.member;
  }

  #clientProcess(host: string, label: string): KernelProcess {
    const process = this.newProcess(host, label);
    this.clients.set(host, process);
    return process;
  }
}
