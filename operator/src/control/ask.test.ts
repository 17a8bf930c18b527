import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CellAdminError } from "../cell/types.ts";
import type { CellAdmin, CellConfiguration, MemberStatus, MemberTarget } from "../cell/types.ts";
import { askCell } from "./ask.ts";

const CELL = "11111111-1111-4111-8111-111111111111";

function status(name: string, overrides: Partial<MemberStatus> = {}): MemberStatus {
  return {
    cellId: CELL,
    memberId: Number(name.slice(1)),
    name,
    incarnation: name,
    version: "0.1.0",
    formatVersion: 1,
    formatVersionMax: 1,
    role: "follower",
    term: 5,
    leaderId: 1,
    lastIndex: 10,
    commitIndex: 10,
    appliedIndex: 10,
    revision: 3,
    configurationIndex: 4,
    joint: false,
    alarms: [],
    progress: [],
    freeBytes: 1,
    volumeBytes: 2,
    ready: true,
    notReady: "",
    syncP90Us: 0,
    tls: undefined,
    ...overrides,
  };
}

function configuration(overrides: Partial<CellConfiguration> = {}): CellConfiguration {
  return {
    cellId: CELL,
    configurationIndex: 4,
    joint: false,
    leaderId: 1,
    members: [1, 2, 3].map((id) => ({ id, name: `m${String(id)}`, incarnation: "", kind: "voter" as const })),
    removedIds: [],
    ...overrides,
  };
}

interface World {
  readonly statuses: Readonly<Record<string, MemberStatus>>;
  readonly configurations: Readonly<Record<string, CellConfiguration>>;
}

function ask(
  world: World,
  cellId: string | undefined,
  known?: CellConfiguration,
): ReturnType<typeof askCell> {
  const unused = (): never => {
    throw new Error("not asked for here");
  };
  const unreachable = (name: string): CellAdminError =>
    new CellAdminError("unreachable", `${name} did not answer`, "unknown");
  const admin: CellAdmin = {
    status: ({ memberName }) => {
      const answer = world.statuses[memberName];
      return answer === undefined ? Promise.reject(unreachable(memberName)) : Promise.resolve(answer);
    },
    configuration: ({ memberName }) => {
      const answer = world.configurations[memberName];
      return answer === undefined ? Promise.reject(unreachable(memberName)) : Promise.resolve(answer);
    },
    changeMembership: unused,
    transferLeadership: unused,
    raiseFormatVersion: unused,
    listNamespaces: unused,
    createNamespace: unused,
    deleteNamespace: unused,
  };
  const targets: MemberTarget[] = ["m1", "m2", "m3"].map((memberName) => ({
    memberName,
    address: `${memberName}:7403`,
  }));
  return askCell(admin, targets, cellId, known);
}

describe("asking a cell", () => {
  it("takes the configuration from the leader, with its view of the others", async () => {
    const answers = await ask(
      {
        statuses: { m1: status("m1", { role: "leader" }), m2: status("m2"), m3: status("m3") },
        configurations: { m1: configuration() },
      },
      CELL,
    );
    assert.equal(answers.configuration?.configurationIndex, 4);
    assert.equal(answers.leader?.name, "m1");
    assert.equal(answers.leaderTarget?.address, "m1:7403");
    assert.equal(answers.statuses.size, 3);
  });

  it("takes a configuration that it knows only while every member says that nothing has changed", async () => {
    const statuses = { m1: status("m1", { role: "leader" }), m2: status("m2"), m3: status("m3") };
    const known = configuration();
    // Nobody could be asked for it: it is not.
    const quiet = await ask({ statuses, configurations: {} }, CELL, known);
    assert.equal(quiet.configuration, known);
    assert.equal(quiet.leader?.name, "m1");
    const changes: Partial<MemberStatus>[] = [
      { term: 6 },
      { leaderId: 2 },
      { configurationIndex: 5 },
      { joint: true },
      { cellId: "another" },
    ];
    for (const change of changes) {
      const changed = { ...statuses, m3: status("m3", change) };
      const answers = await ask({ statuses: changed, configurations: {} }, CELL, known);
      assert.equal(answers.configuration, undefined, JSON.stringify(change));
    }
    const { m1, m2 } = statuses;
    const silent = await ask({ statuses: { m1, m2 }, configurations: {} }, CELL, known);
    assert.equal(silent.configuration, undefined);
  });

  it("goes by the highest term when a deposed leader still takes itself for one", async () => {
    const answers = await ask(
      {
        statuses: {
          m1: status("m1", { role: "leader", term: 5 }),
          m2: status("m2", { role: "leader", term: 6 }),
        },
        // The deposed one has no majority, so it cannot prove anything: its call fails.
        configurations: { m2: configuration({ leaderId: 2 }) },
      },
      CELL,
    );
    assert.equal(answers.leader?.name, "m2");
  });

  it("asks another member when the first cannot prove it", async () => {
    const answers = await ask(
      {
        statuses: { m1: status("m1", { role: "leader" }), m2: status("m2") },
        configurations: { m2: configuration() },
      },
      CELL,
    );
    assert.equal(answers.configuration?.leaderId, 1);
  });

  it("knows nothing when no member can prove it, and says what each said", async () => {
    const answers = await ask({ statuses: { m3: status("m3") }, configurations: {} }, CELL);
    assert.equal(answers.configuration, undefined);
    assert.equal(answers.statuses.size, 1);
    assert.equal(answers.silence, "m1 did not answer; m2 did not answer; m3 did not answer");
  });

  it("does not listen to a member of another cell, or under another name", async () => {
    const answers = await ask(
      {
        statuses: {
          m1: status("m1", { cellId: "other" }),
          m2: status("m3"),
          m3: status("m3", { role: "leader", leaderId: 3 }),
        },
        configurations: { m1: configuration({ cellId: "other" }), m3: configuration({ leaderId: 3 }) },
      },
      CELL,
    );
    assert.deepEqual([...answers.statuses.keys()], ["m3"]);
    assert.equal(answers.leader?.name, "m3");
  });

  it("listens to any cell while the cell's id is not known yet", async () => {
    const answers = await ask(
      {
        statuses: { m1: status("m1", { cellId: "new", role: "leader" }) },
        configurations: { m1: configuration() },
      },
      undefined,
    );
    assert.equal(answers.configuration?.cellId, CELL);
  });
});
