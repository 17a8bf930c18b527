/** The people (or the programs) that operate the simulated cell: through its admin API only, one change at a time. */
import { admin } from "@lockstep/proto";
import type { KernelProcess } from "./kernel/process.ts";
import { AdminCalls, AdminFailure } from "./member/admin-calls.ts";
import type { SimHost } from "./member/host.ts";
import type { World } from "./world.ts";

const CALL_MS_MAX = 20_000;
const PAUSE_MS = 250;
const TRIES_MAX = 40;

type Members = admin.ListMembersResponse;
type Member = admin.Member;

const isVoter = (member: Member): boolean => member.kind === admin.MemberKind.VOTER;

export class Operators {
  readonly #world: World;
  readonly #process: KernelProcess;
  readonly #calls: AdminCalls;
  #busy = false;
  /** The newest membership that was heard of. */
  known: Members | undefined;

  constructor(world: World) {
    this.#world = world;
    this.#process = world.newProcess("op", "operators");
    this.#calls = new AdminCalls(this.#process, world.network, (address) => world.adminAt(address));
  }

  get busy(): boolean {
    return this.#busy;
  }

  /** The first member, then the others, all promoted: a cell of the wanted size. */
  async found(voters: number): Promise<void> {
    const first = this.#world.addHost();
    await first.start({ kind: "bootstrap" });
    for (let size = 2; size <= voters; size += 1) await this.#join();
    await this.#persist("promote all", async (members) => {
      const learners = members.members.filter((member) => !isVoter(member)).map(({ id }) => id);
      if (learners.length > 0) await this.#change(members, { promote: learners });
      return true;
    });
  }

  /** A new member joins and becomes a voter. */
  async grow(): Promise<void> {
    await this.#alone(async () => {
      const host = await this.#join();
      await this.#promote(host);
    });
  }

  async shrink(host: string): Promise<void> {
    await this.#alone(() => this.#remove(host));
  }

  /** A new member takes the place of another, which may be dead: in one joint change. */
  async replace(name: string): Promise<void> {
    await this.#alone(async () => {
      const host = await this.#join();
      await this.#persist(`replace ${name} by ${host.name}`, async (members) => {
        const fresh = members.members.find((member) => member.name === host.name);
        const old = members.members.find((member) => member.name === name);
        if (fresh === undefined) return false;
        if (old === undefined && isVoter(fresh)) return true;
        await this.#change(members, {
          promote: isVoter(fresh) ? [] : [fresh.id],
          remove: old === undefined ? [] : [old.id],
        });
        return true;
      });
      await this.#shutDown(name);
    });
  }

  async transfer(): Promise<void> {
    await this.#alone(async () => {
      await this.#attempt("transfer", (address) =>
        this.#calls.call(address, "transferLeadership", { target: 0 }, CALL_MS_MAX),
      );
      this.#world.count("transfers");
    });
  }

  /** After the last fault: members whose disks are gone leave the configuration. */
  async repair(): Promise<void> {
    await this.#alone(async () => {
      for (const host of this.#world.hosts) {
        if (host.state === "lost" || host.state === "retired") await this.#remove(host.name);
      }
      await this.#list();
    });
  }

  /** Whether everything that cannot come back has left the configuration, as far as the operators know. */
  lostAreGone(): boolean {
    const { known } = this;
    if (known === undefined) return false;
    const names = new Set(known.members.map(({ name }) => name));
    return this.#world.hosts.every(({ state, damaged, name }) =>
      state === "lost" || state === "retired" ? !names.has(name) : damaged === undefined,
    );
  }

  async #alone(work: () => Promise<void>): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof AdminFailure)) throw error;
      this.#world.trace("op", () => `gave up: ${error.code} ${error.message}`);
    } finally {
      this.#busy = false;
    }
  }

  async #join(): Promise<SimHost> {
    const world = this.#world;
    const host = world.addHost();
    const targets = world.joinTargets(host);
    void host.start({ kind: "join", targets });
    for (let tries = 0; host.state !== "running"; tries += 1) {
      if (tries > TRIES_MAX * 4) throw new AdminFailure("timeout", `${host.name} does not join`);
      // As whoever watches over processes does: a joiner that died is started again.
      if (host.state === "down") void host.start({ kind: "join", targets });
      if (host.state === "retired" || host.state === "lost") {
        throw new AdminFailure("refused", `${host.name} is ${host.state}`);
      }
      await this.#sleep(PAUSE_MS);
    }
    return host;
  }

  async #promote(host: SimHost): Promise<void> {
    await this.#persist(`promote ${host.name}`, async (members) => {
      const member = members.members.find(({ name }) => name === host.name);
      if (member === undefined || isVoter(member)) return true;
      await this.#change(members, { promote: [member.id] });
      return true;
    });
  }

  async #remove(name: string): Promise<void> {
    await this.#persist(`remove ${name}`, async (members) => {
      const member = members.members.find((one) => one.name === name);
      if (member === undefined) return true;
      await this.#change(members, { remove: [member.id] });
      return true;
    });
    await this.#shutDown(name);
  }

  /** Whoever was removed is not needed any more, whether it heard of it or not. */
  async #shutDown(name: string): Promise<void> {
    const host = this.#world.host(name);
    if (host === undefined || (await this.#isMember(name))) return;
    host.kill();
    host.state = "retired";
  }

  async #isMember(name: string): Promise<boolean> {
    const members = await this.#list();
    return members.members.some((member) => member.name === name);
  }

  async #change(
    members: Members,
    steps: { readonly promote?: readonly number[]; readonly remove?: readonly number[] },
  ): Promise<void> {
    const request = {
      plannedOn: members.configurationIndex,
      promote: steps.promote ?? [],
      demote: [],
      remove: steps.remove ?? [],
      force: false,
    };
    await this.#attempt("changeMembership", (address) =>
      this.#calls.call(address, "changeMembership", request, CALL_MS_MAX),
    );
  }

  /** Looks at the members and acts, again and again until the act says that all is done. */
  async #persist(what: string, act: (members: Members) => Promise<boolean>): Promise<void> {
    let last: AdminFailure | undefined;
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      try {
        if (await act(await this.#list())) {
          this.#world.trace("op", () => `done: ${what}`);
          return;
        }
      } catch (error) {
        if (!(error instanceof AdminFailure)) throw error;
        last = error;
        this.#world.trace("op", () => `${what}: ${error.code} ${error.message}`);
      }
      await this.#sleep(PAUSE_MS);
    }
    throw last ?? new AdminFailure("timeout", what);
  }

  async #list(): Promise<Members> {
    const members = await this.#attempt("listMembers", (address) =>
      this.#calls.call<Members>(address, "listMembers", {}, CALL_MS_MAX),
    );
    this.known = members;
    return members;
  }

  /** At whoever leads, as far as the answers tell. */
  async #attempt<A>(what: string, call: (address: string) => Promise<A>): Promise<A> {
    let failure = new AdminFailure("unavailable", `nobody to ask: ${what}`);
    const asked = new Set<string>();
    const queue = this.#world.running().map((host) => host.addresses.admin);
    for (let address = queue.shift(); address !== undefined; address = queue.shift()) {
      if (asked.has(address)) continue;
      asked.add(address);
      try {
        return await call(address);
      } catch (error) {
        if (!(error instanceof AdminFailure)) throw error;
        failure = error;
        if (!["not-leader", "unavailable", "no-leader"].includes(error.code)) throw error;
        if (error.leaderAdmin !== undefined) queue.unshift(error.leaderAdmin);
      }
    }
    throw failure;
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#process.after(ms, resolve));
  }
}
