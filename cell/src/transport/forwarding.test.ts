import assert from "node:assert/strict";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { describe, it } from "node:test";
import { Members, ask, id, join, peer, until } from "./testing/member.ts";

const options = { timeout: 10_000 };

describe("a forwarded request", () => {
  it("is answered, whatever its size, and answers may overtake each other", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    await join(one, two);
    const held: (() => void)[] = [];
    two.host.onRequest = (from, body, answer) => {
      assert.equal(from, id(1));
      if (body[0] === 0) held.push(() => answer(body));
      else answer(body);
    };
    const order: number[] = [];
    const first = ask(one, 2, Buffer.alloc(300_000, 0)).then((body) => {
      order.push(1);
      return body;
    });
    const second = ask(one, 2, Buffer.from("quick")).then((body) => {
      order.push(2);
      held.forEach((answer) => answer());
      return body;
    });
    assert.deepEqual(Buffer.from((await second) as Uint8Array), Buffer.from("quick"));
    assert.deepEqual(Buffer.from((await first) as Uint8Array), Buffer.alloc(300_000, 0));
    assert.deepEqual(order, [2, 1]);
  });

  it("asked while the connection is being made waits for it", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    one.transport.setPeers([peer(2, two.transport.address)]);
    assert.deepEqual(
      Buffer.from((await ask(one, 2, Buffer.from("early"))) as Uint8Array),
      Buffer.from("early"),
    );
  });

  it("is unsent to an unknown member, and the call returns before that is told", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    let told: unknown = "nothing";
    one.transport.request(id(7), Buffer.from("x"), 1_000, (body) => (told = body));
    assert.equal(told, "nothing");
    await until(() => told !== "nothing");
    assert.equal(told, "unsent");
  });

  it("is unsent when no connection can be made", options, async () => {
    await using members = new Members();
    const one = await members.start(1, { bounds: { backoffMsMin: 10_000, backoffMsMax: 10_000 } });
    const listener = createServer();
    await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
    const address = `127.0.0.1:${(listener.address() as AddressInfo).port}`;
    await new Promise((resolve) => listener.close(resolve));
    one.transport.setPeers([peer(2, address)]);
    assert.equal(await ask(one, 2, Buffer.from("while connecting")), "unsent");
    assert.equal(await ask(one, 2, Buffer.from("while pausing")), "unsent");
  });

  it("is unsent when its time runs out before the handshake is done", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const silent = createServer((socket) => socket.on("error", () => undefined));
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    one.transport.setPeers([peer(2, `127.0.0.1:${(silent.address() as AddressInfo).port}`)]);
    assert.equal(await ask(one, 2, Buffer.from("x"), 30), "unsent");
    silent.close();
  });

  it("without an answer in time has an unknown fate, and a late answer is ignored", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    await join(one, two);
    const late: ((body: Uint8Array) => void)[] = [];
    two.host.onRequest = (_from, body, answer) => {
      if (Buffer.from(body).toString() === "slow") late.push(answer);
      else answer(body);
    };
    assert.equal(await ask(one, 2, Buffer.from("slow"), 30), undefined);
    late.forEach((answer) => answer(Buffer.from("too late")));
    assert.deepEqual(
      Buffer.from((await ask(one, 2, Buffer.from("next"))) as Uint8Array),
      Buffer.from("next"),
    );
  });

  it("whose connection breaks has an unknown fate", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    await join(one, two);
    let received = 0;
    two.host.onRequest = () => (received += 1);
    const answers = ["a", "b"].map((text) => ask(one, 2, Buffer.from(text), 60_000));
    await until(() => received === 2);
    await two.transport.close();
    assert.deepEqual(await Promise.all(answers), [undefined, undefined]);
  });

  it("lost on the way by a partition has an unknown fate", options, async () => {
    let cut = false;
    await using members = new Members();
    const one = await members.start(1, { intercept: () => (cut ? "drop" : "deliver") });
    const two = await members.start(2);
    await join(one, two);
    await ask(one, 2, Buffer.from("warm"));
    cut = true;
    assert.equal(await ask(one, 2, Buffer.from("x"), 30), undefined);
  });

  it("beyond the bound in flight is unsent", options, async () => {
    await using members = new Members();
    const one = await members.start(1, { bounds: { requestsInFlightMax: 3 } });
    const two = await members.start(2);
    await join(one, two);
    const held: (() => void)[] = [];
    two.host.onRequest = (_from, body, answer) => held.push(() => answer(body));
    const inFlight = [1, 2, 3].map((n) => ask(one, 2, Buffer.of(n)));
    assert.equal(await ask(one, 2, Buffer.of(4)), "unsent");
    await until(() => held.length === 3);
    held.forEach((answer) => answer());
    assert.deepEqual(
      (await Promise.all(inFlight)).map((body) => (body as Uint8Array)[0]),
      [1, 2, 3],
    );
  });

  it("answered twice is answered once", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    await join(one, two);
    two.host.onRequest = (_from, _body, answer) => {
      answer(Buffer.from("1"));
      answer(Buffer.from("2"));
    };
    let answers = 0;
    one.transport.request(id(2), Buffer.from("x"), 1_000, () => (answers += 1));
    await until(() => answers > 0);
    await ask(one, 2, Buffer.from("y"));
    assert.equal(answers, 1);
    assert.ok(two.host.logged.some((line) => line.includes("answered twice")));
  });
});
