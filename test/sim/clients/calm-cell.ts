/** A cell that answers at once, over virtual time: for what clients do by themselves in hours and in crowds. */
import { connect, type Client } from "@lockstep/client";
import { createNativeDoor } from "@lockstep/gateway";
import { MemoryCoordinator } from "../../../gateway/src/testing/memory-coordinator.ts";
import { SeededDice } from "../kernel/dice.ts";
import { EventLoop } from "../kernel/event-loop.ts";
import { KernelProcess, runtimeOf } from "../kernel/process.ts";
import { createClientTransport, type OpenDoor } from "../network/client-transport.ts";
import { SimNetwork } from "../network/network.ts";
import { CALM_NETWORK } from "../network/profile.ts";
import { LatchedReporter } from "../workload/testing/latched-reporter.ts";

const EXPIRY_US = 100_000;
const MS_US = 1_000;

/** A client asks a member for a stream. */
export interface Dial {
  readonly host: string;
  readonly address: string;
  readonly atMs: number;
}

export interface CalmClient {
  readonly process: KernelProcess;
  readonly client: Client;
}

/** Members `m1`, `m2`... without consensus: all of them serve one coordinator in memory, and the first leads. */
export class CalmCell {
  readonly loop: EventLoop = new EventLoop();
  readonly network: SimNetwork;
  readonly coordinator: MemoryCoordinator;
  readonly dials: Dial[] = [];
  readonly #dice: SeededDice;
  readonly #doors = new Map<string, OpenDoor>();
  readonly #members: readonly string[];
  #clients = 0;

  constructor(members: number, seed: number) {
    this.#dice = new SeededDice(seed);
    this.#members = Array.from({ length: members }, (_, index) => `m${String(index + 1)}`);
    this.network = new SimNetwork({
      ...{ scheduler: this.loop, reporter: new LatchedReporter(), profile: CALM_NETWORK },
      dice: this.#dice.fork("network"),
    });
    this.coordinator = new MemoryCoordinator({
      clock: { now: () => 1_000_000 + this.nowMs },
      leader: { memberId: 1, clientAddress: addressOf("m1"), httpAddress: "" },
    });
    for (const host of this.#members) this.start(host);
    const expire = (): void => {
      this.coordinator.expireDue();
      this.loop.in(EXPIRY_US, expire);
    };
    expire();
  }

  get nowMs(): number {
    return this.loop.nowUs / MS_US;
  }

  start(host: string): void {
    const { coordinator } = this;
    const memberId = this.#members.indexOf(host) + 1;
    const door = createNativeDoor({
      coordinator: {
        mutate: (mutation, deliver) => coordinator.mutate(mutation, deliver),
        read: (read, deliver) => coordinator.read(read, deliver),
        renew: (renewal, deliver) => coordinator.renew(renewal, deliver),
        watch: (request, sink) => coordinator.watch(request, sink),
        onLeaseEnd: (listener) => coordinator.onLeaseEnd(listener),
        onLeaderChange: (listener) => coordinator.onLeaderChange(listener),
        info: () => ({ ...coordinator.info(), memberId }),
      },
    });
    this.#doors.set(host, { host, process: this.#process(host), door });
  }

  /** The member is gone without a word; its machine resets what was open. */
  kill(host: string): void {
    const door = this.#doors.get(host);
    this.#doors.delete(host);
    if (door?.process instanceof KernelProcess) door.process.kill();
  }

  /** A new client process, connected. */
  async connect(): Promise<CalmClient> {
    const process = this.#process(`c${String((this.#clients += 1))}`);
    const transport = createClientTransport(process, this.network, (address) => {
      this.dials.push({ host: process.host, address, atMs: this.nowMs });
      return this.#doors.get(address.split(":")[0] ?? "");
    });
    const endpoints = this.#members.map(addressOf);
    const client = await this.run(connect({ endpoints, transport, runtime: runtimeOf(process) }));
    return { process, client };
  }

  /** Lets time pass until `promise` is settled. */
  async run<T>(promise: Promise<T>): Promise<T> {
    let settled = false as boolean;
    const done = (): void => void (settled = true);
    promise.then(done, done);
    await this.loop.run(() => settled);
    return promise;
  }

  async pass(ms: number): Promise<void> {
    let over = false as boolean;
    this.loop.in(ms * MS_US, () => (over = true));
    await this.loop.run(() => over);
  }

  #process(host: string): KernelProcess {
    return new KernelProcess({
      ...{ host, scheduler: this.loop, dice: this.#dice.fork(`${host} ${String(this.loop.nowUs)}`) },
      ...{ rate: 1, wallOffsetMs: 0 },
    });
  }
}

export function addressOf(host: string): string {
  return `${host}:4101`;
}
