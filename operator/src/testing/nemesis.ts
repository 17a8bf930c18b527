/** What goes wrong, and what people do. Drawn per seed: some never see a lost node, some see little else. */
import type { Pod } from "../api/core.ts";
import {
  CELL_MEMBER,
  CELL_NAMESPACE,
  CELL_OPERATION,
  COORDINATION_CELL,
  NODE,
  PERSISTENT_VOLUME_CLAIM,
  POD,
} from "../api/kinds.ts";
import { API_VERSION } from "../api/types.ts";
import type { CellNamespace, CellOperation, CellOperationSpec, CoordinationCell } from "../api/types.ts";
import type { Cluster, Process, SimNode } from "./cluster.ts";
import type { RaftCell } from "./raft-cell.ts";
import type { Simulation } from "./simulation.ts";

const CELL = { namespace: "default", name: "cell" };
const NODES_LOST_MAX = 2;
const REQUESTS_MAX = 4;

/** As often as they stand here. Foreground: as Argo CD deletes, while a tenant uses the cell. */
const ENDS = [
  ...["cell", "cell", "cell", "foreground", "foreground", "namespace"],
  ...Array.from({ length: 34 }, () => "never"),
] as readonly ("never" | "cell" | "foreground" | "namespace")[];
const TENANT = { namespace: "apps", name: "tenant" };

interface Deed {
  readonly name: string;
  /** @returns whether it was done. */
  readonly run: () => boolean;
}

export class Nemesis {
  readonly #simulation: Simulation;
  readonly #weights: readonly (readonly [number, Deed])[];
  readonly #pace: number;
  readonly #healings: { readonly atMs: number; readonly heal: () => void }[] = [];
  /** A history in which more is lost than a cell can bear. */
  readonly #overload: "none" | "passing" | "for-good";
  readonly #ends: "never" | "cell" | "foreground" | "namespace";
  #nodesLost = 0;
  #requests = 0;
  #size = 1;
  #overloadDone = false;
  #endAtMs: number | undefined;

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
    const { dice } = simulation;
    simulation.faultRate = dice.pick([0, 0.01, 0.05]);
    this.#pace = dice.pick([0.04, 0.1, 0.2]);
    this.#overload = dice.chance(0.12) ? "passing" : dice.chance(0.12) ? "for-good" : "none";
    this.#ends = dice.pick(ENDS);
    this.#weights = this.#deeds().map((deed) => [dice.chance(0.3) ? 0 : dice.between(1, 4), deed] as const);
  }

  get #cluster(): Cluster {
    return this.#simulation.cluster;
  }

  /** Once a second. */
  act(): void {
    const { dice } = this.#simulation;
    this.#heal();
    this.#maybeEnd();
    this.#maybeOverload();
    if (!dice.chance(this.#pace)) return;
    const total = this.#weights.reduce((sum, [weight]) => sum + weight, 0);
    let at = dice.next() * total;
    for (const [weight, deed] of this.#weights) {
      at -= weight;
      if (at > 0) continue;
      if (deed.run()) this.#done(deed.name);
      return;
    }
  }

  /** Everything that can be mended is; what a person would put right is put right. */
  calm(): void {
    const simulation = this.#simulation;
    simulation.trace("world: the faults are over");
    for (const { heal } of this.#healings.splice(0)) heal();
    simulation.faultRate = 0;
    simulation.isStale = false;
    simulation.setOperators(1);
    simulation.laws.isPaused = false;
    this.#cluster.copyPerS = 20_000;
    for (const node of this.#cluster.nodes.values()) {
      node.cut = false;
      if (!node.gone) {
        node.up = true;
        this.#cordon(node, false);
      }
    }
    for (const disk of this.#cluster.disks.values()) disk.slow = false;
    for (let i = 0; i < this.#nodesLost; i += 1) {
      this.#cluster.addNode(`spare-${String(i + 1)}`, simulation.dice.pick(["a", "b", "c"]));
    }
    const spec = this.#cell()?.spec;
    if (spec === undefined) return;
    this.#edit({ paused: false, ...(spec.image === "bad" ? { image: "v2" } : {}) });
  }

  #done(name: string): void {
    this.#simulation.count(`deed ${name}`);
    this.#simulation.trace(`deed: ${name}`);
  }

  #heal(): void {
    for (const healing of [...this.#healings]) {
      if (healing.atMs > this.#cluster.nowMs) continue;
      this.#healings.splice(this.#healings.indexOf(healing), 1);
      healing.heal();
    }
  }

  #later(seconds: readonly [number, number], heal: () => void): void {
    const delayMs = this.#simulation.dice.between(seconds[0], seconds[1]) * 1_000;
    this.#healings.push({ atMs: this.#cluster.nowMs + delayMs, heal });
  }

  #cell(): CoordinationCell | undefined {
    return this.#cluster.api.get(COORDINATION_CELL, CELL);
  }

  #raft(): RaftCell | undefined {
    return this.#cluster.cells.get(this.#cell()?.status?.cellId ?? "");
  }

  #edit(spec: Readonly<Record<string, unknown>>): boolean {
    const cell = this.#cell();
    if (cell === undefined || cell.metadata.deletionTimestamp !== undefined) return false;
    this.#simulation.trace(`person: spec ${JSON.stringify(spec)}`);
    this.#cluster.api.mergePatch(COORDINATION_CELL, CELL, { spec });
    return true;
  }

  #deeds(): readonly Deed[] {
    return [...this.#faults(), ...this.#operatorFaults(), ...this.#edits(), ...this.#wishes()];
  }

  #faults(): readonly Deed[] {
    const { dice } = this.#simulation;
    return [
      { name: "kill member", run: () => this.#harm((process) => this.#cluster.kill(process)) },
      { name: "wipe volume", run: () => this.#harmForGood((process) => this.#cluster.wipe(process.disk)) },
      {
        name: "lose node",
        run: () => {
          if (this.#nodesLost >= NODES_LOST_MAX) return false;
          const isLost = this.#harmNodeOf(
            (process) => this.#mayHarm(process) && this.#isWholeWithout(process),
            (process) => this.#cluster.loseNode(process.node),
          );
          if (isLost) this.#nodesLost += 1;
          return isLost;
        },
      },
      {
        name: "cut node",
        run: () =>
          this.#harmNode((node) => {
            node.cut = true;
            this.#later([5, 150], () => (node.cut = false));
          }),
      },
      {
        name: "node down",
        run: () =>
          this.#harmNode((node) => {
            node.up = false;
            this.#later([5, 150], () => (node.up = true));
          }),
      },
      { name: "drain node", run: () => this.#drain() },
      {
        name: "pod ends",
        run: () =>
          this.#harm((process) => {
            const pod = this.#podOf(process);
            if (pod === undefined) return;
            const { name, namespace = "", uid = "" } = pod.metadata;
            const status = { ...pod.status, phase: dice.pick(["Failed", "Succeeded"] as const) };
            this.#cluster.api.applyStatus(POD, { ...pod, metadata: { name, namespace, uid }, status });
            this.#cluster.processes.delete(uid);
          }),
      },
      {
        name: "delete pod",
        run: () =>
          this.#harm((process) => {
            const pod = this.#podOf(process);
            if (pod !== undefined) this.#cluster.api.delete(POD, pod.metadata);
          }),
      },
      {
        name: "slow copy",
        run: () => {
          this.#cluster.copyPerS = dice.pick([250, 600]);
          this.#later([20, 100], () => (this.#cluster.copyPerS = 4_000));
          return true;
        },
      },
      {
        name: "slow disk",
        run: () =>
          this.#harm(({ disk }) => {
            disk.slow = true;
            this.#later([20, 200], () => (disk.slow = false));
          }),
      },
      {
        name: "new leader",
        run: () => {
          const raft = this.#raft();
          const others = raft?.configuration.voters.filter((id) => id !== raft.leaderId) ?? [];
          if (raft === undefined || raft.leaderId === 0 || others.length === 0) return false;
          const target = dice.pick(others);
          if (!this.#cluster.reachable(raft.id).has(target) || raft.matchOf(target) < raft.commitIndex)
            return false;
          raft.transfer(target);
          return true;
        },
      },
    ];
  }

  #operatorFaults(): readonly Deed[] {
    const simulation = this.#simulation;
    return [
      {
        name: "stale caches",
        run: () => {
          simulation.isStale = true;
          this.#later([10, 60], () => (simulation.isStale = false));
          return true;
        },
      },
      {
        name: "two operators",
        run: () => {
          if (simulation.operators > 1) return false;
          simulation.setOperators(2);
          this.#later([5, 60], () => simulation.setOperators(1));
          return true;
        },
      },
      {
        name: "burst of API errors",
        run: () => {
          const before = simulation.faultRate;
          simulation.faultRate = 0.3;
          this.#later([5, 30], () => (simulation.faultRate = before));
          return true;
        },
      },
    ];
  }

  #edits(): readonly Deed[] {
    const { dice, laws } = this.#simulation;
    return [
      { name: "edit voters", run: () => this.#edit({ voters: dice.pick([1, 3, 3, 5]) }) },
      { name: "edit image", run: () => this.#edit({ image: dice.pick(["v2", "v3"]) }) },
      {
        name: "edit bad image",
        run: () => {
          const { image } = this.#cell()?.spec ?? {};
          if (image === "bad") return false;
          this.#later([20, 120], () => {
            if (this.#cell()?.spec.image === "bad") this.#edit({ image: "v3" });
          });
          return this.#edit({ image: "bad" });
        },
      },
      {
        name: "edit storage",
        run: () => this.#edit({ storage: { size: `${String((this.#size += 1))}Gi` } }),
      },
      {
        name: "pause",
        run: () => {
          if (laws.isPaused || this.#simulation.operators > 1) return false;
          this.#later([5, 60], () => {
            laws.isPaused = false;
            this.#edit({ paused: false });
          });
          // Passes that began before still go on for a moment.
          this.#later([1, 1], () => {
            if (this.#cell()?.spec.paused === true && this.#simulation.isQuiet) laws.isPaused = true;
          });
          return this.#edit({ paused: true });
        },
      },
      {
        name: "delete CellMember",
        run: () => {
          const members = this.#cluster.api.list(CELL_MEMBER);
          if (members.length === 0) return false;
          this.#cluster.api.delete(CELL_MEMBER, dice.pick(members).metadata);
          return true;
        },
      },
      {
        name: "delete claim",
        run: () => {
          const claims = this.#cluster.api.list(PERSISTENT_VOLUME_CLAIM);
          const process =
            claims.length > 0 ? this.#cluster.processOf(dice.pick(claims).metadata.name) : undefined;
          if (process?.state !== "running") return false;
          // In use: it goes only when its pod does.
          return this.#mayHarm(process) && this.#isWholeWithout(process)
            ? (this.#cluster.api.delete(PERSISTENT_VOLUME_CLAIM, {
                namespace: "default",
                name: process.name,
              }),
              true)
            : false;
        },
      },
      {
        name: "status lost",
        run: () => {
          const cell = this.#cell();
          if (cell?.status?.cellId === undefined || dice.chance(0.7)) return false;
          this.#cluster.api.applyStatus(COORDINATION_CELL, { ...cell, metadata: { ...CELL }, status: {} });
          return true;
        },
      },
    ];
  }

  #wishes(): readonly Deed[] {
    const { dice } = this.#simulation;
    const ask = (wish: () => Pick<CellOperationSpec, "action" | "member" | "node">): Deed["run"] => {
      return () => {
        if (this.#requests >= REQUESTS_MAX || this.#cluster.api.list(CELL_MEMBER).length === 0) return false;
        this.#requests += 1;
        const operation: CellOperation = {
          apiVersion: API_VERSION,
          kind: "CellOperation",
          metadata: { namespace: "default", name: `wish-${String(this.#requests)}` },
          spec: { cell: "cell", ...wish() },
        };
        this.#cluster.api.create(CELL_OPERATION, operation);
        return true;
      };
    };
    const anyMember = (): string => dice.pick(this.#cluster.api.list(CELL_MEMBER)).metadata.name;
    return [
      { name: "wish Replace", run: ask(() => ({ action: "Replace", member: anyMember() })) },
      {
        name: "wish TransferLeadership",
        run: ask(() =>
          dice.chance(0.5)
            ? { action: "TransferLeadership" }
            : { action: "TransferLeadership", member: anyMember() },
        ),
      },
      { name: "wish Restart", run: ask(() => ({ action: "Restart", member: anyMember() })) },
      {
        name: "wish Drain",
        run: ask(() => {
          const hosts = this.#cluster.api.list(POD).flatMap(({ spec }) => spec.nodeName ?? []);
          return { action: "Drain", node: hosts.length > 0 ? dice.pick(hosts) : "node-1" };
        }),
      },
    ];
  }

  #podOf(process: Process): Pod | undefined {
    return this.#cluster.api.get(POD, { namespace: "default", name: process.name });
  }

  /** Whether the cell bears it: a majority of every half stays without this member, and without who is away already. */
  #mayHarm(process: Process): boolean {
    const raft = this.#raft();
    if (raft === undefined || process.disk.cellId !== raft.id) return true;
    const { voters, old } = raft.configuration;
    const alive = this.#lasting(raft);
    alive.delete(process.disk.memberId);
    return [voters, ...(old === undefined ? [] : [old])].every(
      (half) =>
        !half.includes(process.disk.memberId) ||
        half.filter((id) => alive.has(id)).length >= Math.floor(half.length / 2) + 1,
    );
  }

  /** Everybody else is there and up with the log: losing this disk loses nothing. */
  #isWholeWithout(process: Process): boolean {
    const raft = this.#raft();
    if (raft === undefined) return false;
    if (process.disk.cellId !== raft.id) return true;
    if (raft.joint || raft.leaderId === 0 || this.#cell()?.status?.operation?.kind === "Recover")
      return false;
    const { voters, learners } = raft.configuration;
    if (learners.includes(process.disk.memberId)) return true;
    const alive = this.#lasting(raft);
    const others = voters.filter((id) => id !== process.disk.memberId);
    return others.length >= 2 && others.every((id) => alive.has(id) && raft.matchOf(id) >= raft.commitIndex);
  }

  /** Members that run, and whose volume is not to go as soon as they stop. */
  #lasting(raft: RaftCell): Set<number> {
    const alive = new Set(this.#cluster.reachable(raft.id));
    for (const claim of this.#cluster.api.list(PERSISTENT_VOLUME_CLAIM)) {
      const disk = this.#cluster.diskOf(claim);
      const isDoomed = claim.metadata.deletionTimestamp !== undefined && disk?.cellId === raft.id;
      if (isDoomed) alive.delete(disk.memberId);
    }
    return alive;
  }

  #harm(deed: (process: Process) => void): boolean {
    const running = [...this.#cluster.processes.values()].filter((process) => this.#mayHarm(process));
    if (running.length === 0) return false;
    deed(this.#simulation.dice.pick(running));
    return true;
  }

  #harmForGood(deed: (process: Process) => void): boolean {
    const running = [...this.#cluster.processes.values()].filter(
      (process) => this.#mayHarm(process) && this.#isWholeWithout(process),
    );
    if (running.length === 0) return false;
    deed(this.#simulation.dice.pick(running));
    return true;
  }

  #harmNode(deed: (node: SimNode) => void): boolean {
    return this.#harmNodeOf(
      (process) => this.#mayHarm(process),
      (process) => {
        const node = this.#cluster.nodes.get(process.node);
        if (node !== undefined) deed(node);
      },
    );
  }

  /** A newcomer may share the host of the member that it replaces: what runs there is harmed together. */
  #harmNodeOf(may: (process: Process) => boolean, deed: (process: Process) => void): boolean {
    const all = [...this.#cluster.processes.values()];
    const fitting = all.filter(({ node }) => all.every((other) => other.node !== node || may(other)));
    if (fitting.length === 0) return false;
    deed(this.#simulation.dice.pick(fitting));
    return true;
  }

  #cordon(node: SimNode, on: boolean): void {
    if (this.#cluster.api.get(NODE, { name: node.name }) === undefined) return;
    this.#cluster.api.mergePatch(NODE, { name: node.name }, { spec: { unschedulable: on } });
  }

  /** `kubectl drain`: cordons, and evicts as far as the budget lets it. */
  #drain(): boolean {
    const pods = this.#cluster.api.list(POD).filter(({ spec }) => spec.nodeName !== undefined);
    if (pods.length === 0) return false;
    const pod = this.#simulation.dice.pick(pods);
    const node = this.#cluster.nodes.get(pod.spec.nodeName ?? "");
    if (node === undefined || node.gone) return false;
    this.#cordon(node, true);
    this.#simulation.count(this.#cluster.evict(pod) ? "evicted" : "eviction refused");
    this.#later([30, 200], () => this.#cordon(node, false));
    return true;
  }

  #maybeOverload(): void {
    const { dice } = this.#simulation;
    const raft = this.#raft();
    if (this.#overloadDone || this.#overload === "none" || raft === undefined || !dice.chance(0.02)) return;
    const voters = [...this.#cluster.processes.values()].filter(
      ({ disk }) => disk.cellId === raft.id && raft.configuration.voters.includes(disk.memberId),
    );
    if (voters.length < 3 || this.#cell()?.status?.admitted !== true) return;
    if (raft.joint || voters.length < raft.configuration.voters.length) return;
    // A volume that goes as soon as its pod stops saves nothing.
    if (this.#lasting(raft).size < voters.length) return;
    this.#overloadDone = true;
    this.#done(`quorum lost ${this.#overload}`);
    const lost = voters.slice(0, -1);
    if (this.#overload === "passing") {
      for (const { node } of lost) {
        const it = this.#cluster.nodes.get(node);
        if (it === undefined) continue;
        it.cut = true;
        this.#later([40, 200], () => (it.cut = false));
      }
      return;
    }
    for (const { disk } of lost) this.#cluster.wipe(disk);
    const survivor = voters.at(-1)?.name ?? "";
    this.#later([100, 200], () => {
      this.#done("recovery");
      this.#edit({ recovery: { survivor, cellId: raft.id } });
    });
  }

  #maybeEnd(): void {
    const { dice, laws, isQuiet } = this.#simulation;
    if (this.#ends === "never") return;
    if (this.#endAtMs === undefined) {
      this.#endAtMs = this.#cluster.nowMs + dice.between(5, 190) * 1_000;
      if (this.#ends === "foreground") this.#cluster.api.create(CELL_NAMESPACE, tenant());
    }
    const cell = this.#cell();
    if (this.#cluster.nowMs < this.#endAtMs || cell === undefined) return;
    if (cell.metadata.deletionTimestamp !== undefined) {
      if (isQuiet && this.#cluster.api.get(CELL_NAMESPACE, TENANT) !== undefined) laws.isHeld = true;
      return;
    }
    this.#done(`delete ${this.#ends}`);
    const { uid = "" } = cell.metadata;
    this.#cluster.api.delete(COORDINATION_CELL, CELL, {
      uid,
      propagation: this.#ends === "foreground" ? "Foreground" : "Background",
    });
    if (this.#ends === "foreground") {
      this.#later([5, 100], () => {
        this.#done("tenant goes");
        laws.isHeld = false;
        this.#cluster.api.delete(CELL_NAMESPACE, TENANT);
      });
    }
    if (this.#ends !== "namespace") return;
    for (const { metadata } of this.#cluster.api.list(CELL_MEMBER))
      this.#cluster.api.delete(CELL_MEMBER, metadata);
  }
}

function tenant(): CellNamespace {
  return {
    apiVersion: API_VERSION,
    kind: CELL_NAMESPACE.kind,
    metadata: TENANT,
    spec: { cellRef: { namespace: CELL.namespace, name: CELL.name }, deletionPolicy: "Retain" },
  };
}
