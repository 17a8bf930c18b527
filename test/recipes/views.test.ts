import type { Service } from "@lockstep/client";
import assert from "node:assert/strict";
import { after, afterEach, before, describe, it } from "node:test";
import { until } from "../support/until.ts";
import { RecipeCell } from "./recipe-cell.ts";

interface Address {
  readonly port: number;
}

function parse(json: unknown): Address {
  if (typeof json !== "object" || json === null || !("port" in json) || typeof json.port !== "number") {
    throw new TypeError("an endpoint has a port");
  }
  return { port: json.port };
}

const fail = (error: unknown): void => assert.fail(String(error));

describe("services, views, values, counters and barriers on a real cell (R=3)", () => {
  let world: RecipeCell;
  before(async () => {
    world = await RecipeCell.start();
  });
  after(async () => {
    await world.stop();
  });
  afterEach(async () => {
    await world.assertNothingLeft();
  });

  it("view: the same as the cell's own answer, with its leader killed and its history compacted in between", async () => {
    const { client } = await world.contender();
    const writer = (await world.contender(20_000)).client;
    await writer.txn({
      success: Array.from({ length: 60 }, (_, i) => ({ put: { key: `/tree/${String(i)}`, value: "0" } })),
    });
    await using view = await client.view({ prefix: "/tree/" });
    const leader = await world.cell.leader();
    for (let i = 0; i < 300; i++) {
      if (i === 100) await leader.kill();
      const { revision } = await writer.put(`/tree/${String(i % 90)}`, String(i));
      if (i % 7 === 0) await writer.delete(`/tree/${String(i % 50)}`);
      if (i % 100 === 50) await writer.compact(revision);
    }
    const { kvs, revision } = await writer.range({ prefix: "/tree/" });
    await until("the view is there", () =>
      view.revision >= (kvs.at(-1)?.modRevision ?? revision) && !view.stale ? true : undefined,
    );
    await until("the view shows the same", () => {
      const seen = view.entries().map((kv) => [kv.keyText, kv.text(), kv.modRevision, kv.createRevision]);
      const truth = kvs.map((kv) => [kv.keyText, kv.text(), kv.modRevision, kv.createRevision]);
      return JSON.stringify(seen) === JSON.stringify(truth) ? true : undefined;
    });
    await writer.delete({ prefix: "/tree/" });
    leader.start();
    await world.cell.agreedDigest();
  });

  it("service: eight endpoints come and go, and every process sees the same set", async () => {
    const contenders = await world.contenders(8);
    const sets = await Promise.all(
      contenders.map(({ client }) => client.service<Address>("api").endpoints({ parse, onError: fail })),
    );
    const registrations = await Promise.all(
      contenders.map(({ client, session }, port) => {
        const service: Service<Address> = client.service("api");
        return service.register({ session, id: String(port), value: { port } });
      }),
    );
    const all = (count: number): Promise<boolean> =>
      until("all sets agree", () =>
        sets.every(({ current }) => current.length === count) ? true : undefined,
      );
    await all(8);
    assert.deepEqual(
      sets[0]?.current.map(({ value }) => value.port),
      [0, 1, 2, 3, 4, 5, 6, 7],
    );
    await contenders[0]?.session.close();
    await registrations[1]?.deregister();
    await all(6);
    await Promise.all(registrations.slice(2).map((registration) => registration.deregister()));
    await all(0);
    for (const set of sets) set.close();
  });

  it("counter: eight processes add, and none is lost", async () => {
    const contenders = await world.contenders(8);
    const sums = await Promise.all(
      contenders.map(async ({ client }) => {
        const counter = client.counter("jobs");
        const seen: number[] = [];
        for (let i = 0; i < 5; i++) seen.push(await counter.add());
        return seen;
      }),
    );
    assert.equal(new Set(sums.flat()).size, 40);
    const [first] = contenders;
    assert.equal(await first?.client.counter("jobs").get(), 40);
    await first?.client.delete("/counters/jobs");
  });

  it("value: every process sees what one sets", async () => {
    const [one, two] = await world.contenders(2);
    assert.ok(one !== undefined && two !== undefined);
    const options = { initial: { port: 0 }, parse, onError: fail };
    await using mine = await one.client.value("/config/port", options);
    await using theirs = await two.client.value("/config/port", options);
    await mine.set({ port: 1 });
    await until("the other sees it", () => (theirs.current.port === 1 ? true : undefined));
    await theirs.update(({ port }) => ({ port: port + 1 }));
    await until("it sees the update", () => (mine.current.port === 2 ? true : undefined));
    await one.client.delete("/config/port");
  });

  it("double barrier: three rounds of eight begin and end together", async () => {
    const contenders = await world.contenders(8);
    for (let round = 0; round < 3; round++) {
      let begun = 0;
      let ended = 0;
      await Promise.all(
        contenders.map(async ({ client, session }) => {
          const barrier = client.doubleBarrier("work", { participants: 8 });
          const participation = await barrier.enter({ session });
          begun += 1;
          assert.equal(ended, 0);
          await client.get("/work");
          await until("all have begun", () => (begun === 8 ? true : undefined));
          ended += 1;
          await participation.leave();
          assert.equal(ended, 8);
        }),
      );
    }
  });

  it("transaction: ifHeld fences in the cell, and steps see those before them", async () => {
    const { client, session } = await world.contender();
    const early = await client.fairLock("job").acquire({ session });
    const write = client.transaction().ifHeld(early).put("/result", "early").get("/result");
    const done = await write.commitOrThrow();
    assert.equal(done.results[1].kvs[0]?.text(), "early");
    await client.delete(early.key);
    await using late = await client.fairLock("job").acquire({ session });
    const refused = await write.commit();
    assert.ok(!refused.ok);
    assert.deepEqual(
      refused.failed.map(({ kind, key }) => [kind, key]),
      [["held", early.key]],
    );
    await client.transaction().ifHeld(late).delete("/result").commitOrThrow();
  });

  it("revocation: a holder that is asked gives way", async () => {
    const [one, two] = await world.contenders(2);
    assert.ok(one !== undefined && two !== undefined);
    const held = await one.client.lock("job", { session: one.session });
    await one.client.onAsked(held, () => held.release(), { onError: fail });
    await using request = await two.client.lock("job").askHolder({ session: two.session, reason: "please" });
    assert.ok(request !== undefined);
    await using next = await two.client.lock("job", { session: two.session, waitMs: 10_000 });
    assert.ok(next.token > held.token);
  });
});
