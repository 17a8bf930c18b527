// What the tools of GitOps make of our objects: Flux by the rules of kstatus, Argo CD by the script that we give it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { parse } from "yaml";
import type { CoordinationCell } from "../api/types.ts";
import { NOW_MS, plannedCell } from "./testing/cells.ts";
import { kstatusOf } from "./testing/kstatus.ts";
import type { KStatus } from "./testing/kstatus.ts";

const folder = join(import.meta.dirname, "../../../deploy/argocd");
const script = readFileSync(join(folder, "health.lua"), "utf8");

type ArgoHealth = "Degraded" | "Healthy" | "Progressing" | "Suspended";

interface Case {
  readonly situation: string;
  readonly cell: CoordinationCell;
  readonly phase: string | undefined;
  readonly kstatus: KStatus;
  readonly argo: ArgoHealth;
  /** Part of what a person reads in Argo CD. */
  readonly message: RegExp;
}

const longAgo = new Date(NOW_MS - 3_600_000).toISOString();
const healthy = plannedCell({});

const CASES: readonly Case[] = [
  {
    situation: "a cell as the spec wants it",
    cell: healthy,
    phase: "Ready",
    kstatus: "Current",
    argo: "Healthy",
    message: /3 voters, all healthy/,
  },
  {
    situation: "a cell that is being made",
    cell: plannedCell({ empty: true }),
    phase: "Creating",
    kstatus: "InProgress",
    argo: "Progressing",
    message: /./,
  },
  {
    situation: "a spec that the operator has not looked at",
    cell: { ...healthy, metadata: { ...healthy.metadata, generation: 2 } },
    phase: "Ready",
    kstatus: "InProgress",
    argo: "Progressing",
    message: /has not looked/,
  },
  {
    situation: "a cell that grows",
    cell: plannedCell({ spec: { voters: 5 } }),
    phase: "Changing",
    kstatus: "InProgress",
    argo: "Progressing",
    message: /./,
  },
  {
    situation: "a cell with a sick voter",
    cell: plannedCell({ down: ["orders-c"] }),
    phase: "Degraded",
    kstatus: "InProgress",
    argo: "Degraded",
    message: /orders-c/,
  },
  {
    situation: "a cell that lost its quorum long ago",
    cell: plannedCell({
      down: ["orders-b", "orders-c"],
      status: {
        conditions: [
          {
            type: "QuorumHealthy",
            status: "False",
            reason: "QuorumLost",
            message: "",
            lastTransitionTime: longAgo,
          },
        ],
      },
    }),
    phase: "Stalled",
    kstatus: "Failed",
    argo: "Degraded",
    message: /spec\.recovery/,
  },
  {
    situation: "a cell that is paused",
    cell: plannedCell({ spec: { paused: true } }),
    phase: "Paused",
    kstatus: "Current",
    argo: "Suspended",
    message: /spec\.paused/,
  },
  {
    situation: "a cell that is being deleted",
    cell: plannedCell({ deleting: true }),
    phase: "Deleting",
    kstatus: "Terminating",
    argo: "Progressing",
    message: /./,
  },
];

describe("kstatus", () => {
  for (const { situation, cell, phase, kstatus } of CASES) {
    it(`${situation} is ${kstatus}`, () => {
      assert.equal(cell.status?.phase, phase);
      assert.equal(kstatusOf(cell), kstatus, JSON.stringify(cell.status?.conditions, undefined, 1));
    });
  }

  it("Ready, Reconciling and Stalled never contradict each other", () => {
    for (const { situation, cell } of CASES) {
      const conditions = (cell.status?.conditions ?? []).filter(
        ({ type, status }) => status === "True" && ["Ready", "Reconciling", "Stalled"].includes(type),
      );
      assert.ok(conditions.length <= 1, situation);
    }
  });
});

/** As much of the interpreter as is used. */
interface LuaModule {
  readonly LuaFactory: new () => {
    createEngine(): Promise<{
      readonly global: { close(): void };
      doString(text: string): Promise<unknown>;
    }>;
  };
}

/** Undefined: the interpreter is not installed. */
async function loadLua(): Promise<LuaModule | undefined> {
  // Named by a variable: what is here is checked with and without the package.
  const name: string = "wasmoon";
  try {
    return (await import(name)) as LuaModule;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ERR_MODULE_NOT_FOUND") return undefined;
    throw error;
  }
}

const lua = await loadLua();

/** The object as Lua's own tables, as Argo CD hands it over. */
function luaTable(value: unknown): string {
  if (value === null || value === undefined) return "nil";
  if (Array.isArray(value)) return `{${value.map(luaTable).join(", ")}}`;
  if (typeof value === "object") {
    return `{${Object.entries(value)
      .map(([key, each]) => `[${luaTable(key)}] = ${luaTable(each)}`)
      .join(", ")}}`;
  }
  // JSON's escapes of what stands in these objects are Lua's too.
  return JSON.stringify(value);
}

async function argoHealth(text: string, object: unknown): Promise<{ status: string; message: string }> {
  if (lua === undefined) throw new TypeError("no Lua interpreter");
  const engine = await new lua.LuaFactory().createEngine();
  try {
    const answer = await engine.doString(`obj = ${luaTable(object)}\n${text}`);
    return answer as { status: string; message: string };
  } finally {
    engine.global.close();
  }
}

describe("health in Argo CD", { skip: lua === undefined ? "wasmoon is not installed" : false }, () => {
  for (const { situation, cell, argo, message } of CASES) {
    it(`${situation} is ${argo}`, async () => {
      const health = await argoHealth(script, cell);
      assert.equal(health.status, argo);
      assert.match(health.message, message);
    });
  }

  it("an object that nobody looked at yet is not called healthy", async () => {
    const health = await argoHealth(script, { ...healthy, status: undefined });
    assert.equal(health.status, "Progressing");
  });

  it("the ConfigMap that is applied holds this script, for each kind", () => {
    const config = parse(readFileSync(join(folder, "argocd-cm.yaml"), "utf8")) as {
      data: Record<string, string>;
    };
    for (const kind of ["CoordinationCell", "CellMember", "CellOperation", "Namespace"]) {
      assert.equal(config.data[`resource.customizations.health.lockstep.dev_${kind}`], script, kind);
    }
  });
});
