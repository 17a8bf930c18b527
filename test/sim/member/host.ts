import { createNativeDoor } from "@lockstep/gateway";
import { createAdminService } from "../../../cell/src/admin/service.ts";
import { InvariantError } from "../../../cell/src/invariant.ts";
import { startCore } from "../../../cell/src/member/core.ts";
import type { Core } from "../../../cell/src/member/core.ts";
import { openMemberFolder } from "../../../cell/src/member/folder.ts";
import type { ListenAddresses, MemberOptions, Origin } from "../../../cell/src/member/options.ts";
import type { Platform } from "../../../cell/src/member/platform.ts";
import type { Environment, Log } from "../../../cell/src/replica/environment.ts";
import type { Transport } from "../../../cell/src/transport/types.ts";
import { MemoryDisk } from "../../../cell/src/wal/testing/index.ts";
import { WalError } from "../../../cell/src/wal/index.ts";
import type { Disk } from "../../../cell/src/wal/types.ts";
import type { SimMember } from "../contract.ts";
import { drawUuid } from "../kernel/dice.ts";
import { environmentOf } from "../kernel/process.ts";
import type { KernelProcess } from "../kernel/process.ts";
import type { World } from "../world.ts";
import { AdminCalls, askToJoin } from "./admin-calls.ts";
import type { OpenAdmin } from "./admin-calls.ts";
import { DiskFaults } from "./disk-faults.ts";
import { DoorWatch } from "./door-watches.ts";
import { watchRenewals } from "./renewal-laws.ts";
import { HostStores, KEEP_ALL } from "./stores.ts";

const DIRECTORY = "/data";
export const DISK_BYTES: number = 64 * 1024 * 1024;
/** How long a member that was removed goes on, as in main.ts: the others are to hear of it. */
const REMOVED_LINGER_MS = 1_000;

export type HostState =
  /** No process. */
  | "down"
  | "starting"
  | "running"
  /** Removed from its cell, or refused for good: it never comes back. */
  | "retired"
  /** Its disk is gone or damaged: it must be replaced. */
  | "lost";

type Ending = "stopped" | "killed" | "power cut";

/** A machine with a disk on which members run, one life after the other. */
export class SimHost {
  readonly name: string;
  readonly addresses: ListenAddresses;
  readonly disk: MemoryDisk;
  readonly faults: DiskFaults;
  state: HostState = "down";
  member: SimMember | undefined;
  admin: OpenAdmin | undefined;
  process: KernelProcess | undefined;
  /** A flipped bit: among what was written, then the next start must refuse; behind it, then it may. */
  damaged: "middle" | "tail" | undefined;
  /** Lives so far. */
  lives = 0;
  readonly #world: World;
  readonly #stores = new HostStores();
  #core: Core | undefined;
  /** The process that was asked to stop. */
  #stopping: KernelProcess | undefined;

  constructor(world: World, name: string) {
    this.#world = world;
    this.name = name;
    const dice = world.dice.fork(`disk of ${name}`);
    this.addresses = {
      client: `${name}:1`,
      http: `${name}:2`,
      peer: `${name}:3`,
      admin: `${name}:4`,
      ops: `${name}:5`,
    };
    this.faults = new DiskFaults(dice.fork("faults"), world.reporter, world.plan.disk);
    this.disk = new MemoryDisk({
      random: () => dice.random(),
      capacityBytes: DISK_BYTES,
      fault: this.faults.fault,
      onOperation: (_operation, complete) => {
        if (this.process !== undefined) this.faults.operate(this.process, world.loop.nowUs, complete);
      },
    });
  }

  get isUp(): boolean {
    return this.state === "running" || this.state === "starting";
  }

  /** Starts a process; resolves when the member runs. Never rejects: how a start failed decides the state. */
  async start(origin: Origin): Promise<void> {
    const { name } = this;
    this.state = "starting";
    this.lives += 1;
    this.faults.reset();
    const process = this.#world.newProcess(name, `life ${String(this.lives)} of ${name}`);
    this.process = process;
    const environment = environmentOf(process, {
      log: this.#log(process),
      fatal: (error) => this.#fatal(process, error),
    });
    try {
      await this.#open(process, environment, origin);
    } catch (error) {
      if (process.alive) this.#startFailed(process, error);
    }
  }

  /** kill -9: what was written is still in the page cache. */
  kill(): void {
    this.#end("killed");
  }

  /** What was not fsynced may be gone. */
  cutPower(): void {
    this.#end("power cut");
  }

  /** As SIGTERM: gives leadership away, answers, fixes the store. */
  async stop(): Promise<void> {
    const { process, member } = this;
    const core = this.#core;
    if (process === undefined || member === undefined || core === undefined) return this.kill();
    // A second SIGTERM changes nothing, as in the member's program: the first goes on, for long when the disk hangs.
    if (this.#stopping === process) return;
    this.#stopping = process;
    try {
      await core.handOver();
      member.door.close();
      await core.close();
    } catch (error) {
      // A disk that fails while the member stops: it ends all the same, as after a crash.
      if (!this.faults.excuses) throw error;
    }
    if (process.alive) this.#end("stopped");
  }

  /** The disk is empty from now on. */
  wipe(): void {
    this.#end("power cut");
    this.#stores.wipe();
    this.state = "lost";
    this.#world.god.diskWiped(this.name);
  }

  #end(how: Ending): void {
    const { process } = this;
    if (process?.alive !== true) return;
    this.#world.trace(this.name, () => how);
    this.#world.god.ended(this.name);
    process.kill();
    this.member = undefined;
    this.admin = undefined;
    this.#core = undefined;
    if (this.isUp) this.state = "down";
    const { dice } = process;
    if (how === "power cut") {
      this.disk.crash(dice.pick(["lose", "keep", "tear"]));
      this.#stores.crash(() => dice.random());
    } else {
      this.disk.kill();
      this.#stores.crash(KEEP_ALL);
    }
  }

  async #open(process: KernelProcess, environment: Environment, origin: Origin): Promise<void> {
    const world = this.#world;
    const options: MemberOptions = {
      ...world.plan.member,
      ...{ directory: DIRECTORY, name: this.name, origin, version: "simulated" },
      ...{ listen: this.addresses, advertise: this.addresses },
    };
    const platform = this.#platform(process);
    const parts = { options, environment, platform };
    const folder = await openMemberFolder({ ...parts, onSync: () => undefined });
    if (this.damaged === "middle") {
      world.reporter.violation("W2", `${this.name} has started from a log with a flipped bit in it`);
    }
    this.damaged = undefined;
    world.god.opened(this.name, folder);
    const core = await startCore({
      ...{ ...parts, folder },
      events: {
        onRemoved: () => void process.after(REMOVED_LINGER_MS, () => this.#retire("removed")),
        onRefused: (reason) => this.#retire(reason),
      },
      measure: {
        proposal: () => undefined,
        read: () => undefined,
        apply: () => undefined,
        renewed: () => undefined,
      },
    });
    const { identity, replica, coordinator, changes } = core;
    const service = createAdminService({
      ...{ replica, coordinator, changes, self: { ...identity, version: options.version } },
      leases: () => core.sessions.count,
      watches: () => core.hub.watchers,
      syncP90Us: () => 0,
      notReady: () => (replica.leaderId === 0 ? "no leader known" : undefined),
    });
    this.#core = core;
    const door = createNativeDoor({ coordinator });
    this.member = { host: this.name, memberId: identity.memberId, process, core, door };
    this.admin = { host: this.name, process, service };
    this.state = "running";
    world.god.started(this.member);
    DoorWatch.open(world, this.member);
    watchRenewals(world, this.member);
    world.trace(this.name, () => `runs as member ${String(identity.memberId)}`);
  }

  #platform(process: KernelProcess): Platform {
    const world = this.#world;
    const disk: Disk = this.disk.mount();
    const sync = (): Promise<void> =>
      new Promise((resolve, reject) => {
        this.faults.operate(process, world.loop.nowUs, () => {
          const failure = this.faults.barrierFails();
          if (failure === undefined) resolve();
          else reject(failure);
        });
      });
    return {
      disk,
      openStore: (directory) => this.#stores.open(directory, disk, sync),
      createTransport: async (options) => {
        const transport = await world.peers.createTransport(options, process);
        return watched(transport, (messages) => world.god.sending(this.name, messages));
      },
      askToJoin: askToJoin(new AdminCalls(process, world.network, (address) => world.adminAt(address))),
      uuid: () => drawUuid(process.dice),
    };
  }

  #retire(reason: string): void {
    this.#world.trace(this.name, () => `retires: ${reason}`);
    this.#end("killed");
    this.state = "retired";
  }

  #startFailed(process: KernelProcess, error: unknown): void {
    const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    this.#world.trace(this.name, () => `start failed: ${text}`);
    const isDamage = this.damaged !== undefined && error instanceof WalError;
    const isExcused = this.faults.excuses || this.#isFull();
    process.kill();
    this.disk.kill();
    this.state = isDamage ? "lost" : "down";
    if (!isDamage && !isExcused) this.#world.reporter.violation("start", `${this.name}: ${text}`);
  }

  #fatal(process: KernelProcess, error: Error): void {
    if (!process.alive) return;
    const text = `${this.name} stopped itself: ${error.stack ?? error.message}`;
    this.#world.trace(this.name, () => text);
    const isBug = error instanceof InvariantError || !(this.faults.excuses || this.#isFull());
    this.#end("killed");
    if (isBug) this.#world.reporter.violation("fatal", text);
  }

  #isFull(): boolean {
    return this.disk.capacityBytes < DISK_BYTES;
  }

  #log(process: KernelProcess): Log {
    const world = this.#world;
    const tell = (message: string, fields?: object): void => {
      if (!process.alive) return;
      world.memberLogged(message, fields ?? {});
      world.trace(this.name, () => `${message} ${fields === undefined ? "" : JSON.stringify(fields)}`);
    };
    return { debug: tell, info: tell, warn: tell, error: tell };
  }
}

/** The god hears of everything that leaves. */
function watched(
  transport: Transport,
  sending: (messages: Parameters<Transport["send"]>[0]) => void,
): Transport {
  return {
    send: (messages) => {
      sending(messages);
      transport.send(messages);
    },
    notify: (to, notice) => transport.notify(to, notice),
    request: (to, body, timeoutMs, answer) => transport.request(to, body, timeoutMs, answer),
    sendSnapshot: (to, source) => transport.sendSnapshot(to, source),
    setPeers: (peers) => transport.setPeers(peers),
    connected: () => transport.connected(),
    close: () => transport.close(),
  };
}
