// Membership through etcdctl, on a cell of its own: what joins, is promoted and leaves. Not run against etcd, where a member
// is announced before it starts; on a cell it announces itself (docs/etcd.md).
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../../support/cell.ts";
import type { MemberProcess } from "../../support/cell.ts";
import { until } from "../../support/until.ts";
import { Ctl } from "./etcdctl/ctl.ts";
import { targetKind } from "./target.ts";
import { etcdPrograms, type EtcdPrograms } from "./tools.ts";

interface Listed {
  readonly id: string;
  readonly name: string;
  readonly peerUrl: string;
  readonly learner: boolean;
}

const skip = targetKind === "etcd" ? "a cell's own way" : false;

describe("membership with etcdctl", { timeout: 300_000, skip }, () => {
  const programs: Promise<EtcdPrograms> = etcdPrograms();
  let cell: TestCell;
  let joiner: MemberProcess;
  let ctl: Ctl;
  before(async () => {
    cell = await TestCell.start(3);
    ctl = await through(...cell.members);
  });
  after(() => cell.stop());

  async function through(...members: readonly MemberProcess[]): Promise<Ctl> {
    return new Ctl(
      (await programs).etcdctl,
      members.map((member) => member.address(0)),
    );
  }

  async function list(): Promise<Map<string, Listed>> {
    const lines = (await ctl.text("member", "list")).trim().split("\n");
    const members = lines.map((line): [string, Listed] => {
      const [id = "", , name = "", peerUrl = "", , learner] = line.split(", ");
      return [name, { id, name, peerUrl, learner: learner === "true" }];
    });
    return new Map(members);
  }

  async function idOf(name: string): Promise<string> {
    const found = (await list()).get(name);
    assert.ok(found !== undefined, `${name} is a member`);
    return found.id;
  }

  it("A17: a member that joined is listed as a learner, and serves", async () => {
    await ctl.text("put", "/before", "it came");
    joiner = await cell.addProcess("m4");
    joiner.start(cell.joinFlags());
    await until("m4 is a learner", async () => (await list()).get("m4")?.learner);
    const alone = await through(joiner);
    // Reads and writes go on to the leader.
    await until("m4 answers", async () => (await alone.run(["get", "/before"])).code === 0 || undefined);
    assert.equal(await alone.text("get", "/before"), "/before\nit came\n");
    assert.equal(await alone.text("put", "/through", "a learner"), "OK\n");
    assert.equal(await ctl.text("get", "/through"), "/through\na learner\n");
    const status = await alone.fields("endpoint", "status");
    assert.equal(status.get("IsLearner"), "true");
  });

  it("A19: what is wrong is refused with etcd's words, and adding says what to do instead", async () => {
    const voter = [...(await list()).values()].find(({ learner }) => !learner);
    assert.ok(voter !== undefined);
    assert.match(await ctl.fails("member", "promote", voter.id), /can only promote a learner member/);
    assert.match(await ctl.fails("member", "promote", "abcdef"), /etcdserver: member not found/);
    const again = await ctl.fails("member", "add", "m9", `--peer-urls=${voter.peerUrl}`);
    assert.match(again, /etcdserver: Peer URLs already exists/);
    const added = await ctl.fails("member", "add", "m9", "--peer-urls=http://127.0.0.1:1");
    assert.match(added, /start it with --join/);
  });

  it("A19: promoted it votes; the leader that is removed stops, another one leads, and nothing is lost", async () => {
    await until("m4 is promoted", async () => {
      const ran = await ctl.run(["member", "promote", await idOf("m4")]);
      if (ran.code !== 0) assert.match(ran.err, /in sync with leader|unhealthy cluster/);
      return ran.code === 0 || undefined;
    });
    assert.equal((await list()).get("m4")?.learner, false);
    await ctl.text("put", "/promoted", "1");
    const leader = await cell.leader();
    const id = await idOf(leader.name);
    const others = cell.members.filter((member) => member !== leader);
    ctl = await through(...others);
    await until("the leader is removed", async () => {
      const ran = await ctl.run(["member", "remove", id]);
      return ran.code === 0 || !(await list()).has(leader.name) || undefined;
    });
    // Exit code 3: removed from its cell.
    assert.equal(await leader.exited(), 3);
    assert.deepEqual([...(await list()).keys()].sort(), others.map(({ name }) => name).sort());
    assert.equal(await ctl.text("put", "/after", "1"), "OK\n");
    for (const key of ["/before", "/through", "/promoted", "/after"]) {
      assert.notEqual(await ctl.text("get", key), "", key);
    }
    assert.notEqual((await cell.leader()).name, leader.name);
  });
});
