import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, it } from "node:test";
import type { TestContext } from "node:test";
import { chooseFault, FaultProxy, kindOf, refusalOf, seededRandom } from "./fault-proxy.ts";
import type { FaultRates } from "./fault-proxy.ts";

const NONE: FaultRates = {
  conflict: 0,
  gone: 0,
  throttled: 0,
  broken: 0,
  slow: 0,
  "lost-answer": 0,
  "late-events": 0,
  silence: 0,
};

async function proxied(test: TestContext, rates: FaultRates, listener: RequestListener): Promise<FaultProxy> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const upstream = `http://127.0.0.1:${String(port)}`;
  const proxy = await FaultProxy.start({ upstream, rates, random: () => 0 });
  test.after(async () => {
    await proxy.close();
    server.closeAllConnections();
    server.close();
  });
  return proxy;
}

describe("kindOf", () => {
  it("tells lists, watches, single objects and writes of every API group", () => {
    const api = "/api/v1/namespaces/e2e/pods";
    const group = "/apis/lockstep.dev/v1alpha1/coordinationcells";
    assert.deepEqual(
      [api, `${api}?watch=true`, `${api}/one`, `${api}/one/log`].map((url) => kindOf("GET", url)),
      ["list", "watch", "read", "read"],
    );
    assert.deepEqual(
      [group, `${group}?watch=1&resourceVersion=5`, "/api/v1/namespaces", "/api/v1/namespaces/e2e"].map(
        (url) => kindOf("GET", url),
      ),
      ["list", "watch", "list", "read"],
    );
    assert.deepEqual(
      ["POST", "PUT", "PATCH", "DELETE"].map((method) => kindOf(method, api)),
      ["write", "write", "write", "write"],
    );
  });
});

describe("chooseFault", () => {
  const rates: FaultRates = { ...NONE, conflict: 0.1, gone: 0.2, broken: 0.3, silence: 0.4 };

  it("befalls a kind only with what can befall it, each in its share", () => {
    assert.deepEqual(
      [0, 0.09, 0.11, 0.39, 0.41].map((draw) => chooseFault("write", rates, draw)),
      ["conflict", "conflict", "broken", "broken", undefined],
    );
    assert.deepEqual(
      [0, 0.21, 0.51].map((draw) => chooseFault("list", rates, draw)),
      ["gone", "broken", undefined],
    );
    assert.equal(chooseFault("watch", rates, 0.6), "silence");
    assert.equal(chooseFault("read", rates, 0.31), undefined);
  });

  it("refuses with statuses that the apiserver has", () => {
    assert.equal(refusalOf("conflict", 0)?.status, 409);
    assert.equal(refusalOf("gone", 0)?.reason, "Expired");
    assert.deepEqual(
      [0, 0.4, 0.99].map((draw) => refusalOf("broken", draw)?.status),
      [500, 502, 503],
    );
    assert.equal(refusalOf("silence", 0), undefined);
  });

  it("draws the same for the same seed, evenly", () => {
    const [one, same, other] = [seededRandom(7), seededRandom(7), seededRandom(8)];
    const draws = Array.from({ length: 2_000 }, () => one());
    assert.deepEqual(
      draws.slice(0, 5),
      Array.from({ length: 5 }, () => same()),
    );
    assert.notEqual(draws[0], other());
    const share = draws.filter((draw) => draw < 0.25).length / draws.length;
    assert.ok(share > 0.2 && share < 0.3, String(share));
  });
});

describe("FaultProxy", () => {
  it("passes on a request with its headers and body, and the answer", async (test) => {
    const proxy = await proxied(test, NONE, (request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        response.writeHead(201, { "x-seen": request.headers.authorization ?? "" });
        response.end(`${request.method ?? ""} ${request.url ?? ""} ${Buffer.concat(chunks).toString()}`);
      });
    });
    const answer = await fetch(`${proxy.url}/api/v1/pods?x=1`, {
      method: "POST",
      headers: { authorization: "Bearer secret" },
      body: "body",
    });
    assert.equal(answer.status, 201);
    assert.equal(answer.headers.get("x-seen"), "Bearer secret");
    assert.equal(await answer.text(), "POST /api/v1/pods?x=1 body");
    assert.deepEqual([proxy.requests, proxy.injected], [1, {}]);
  });

  it("refuses without asking, in the apiserver's form", async (test) => {
    let asked = 0;
    const proxy = await proxied(test, { ...NONE, throttled: 1 }, (_request, response) => {
      asked += 1;
      response.end();
    });
    const answer = await fetch(`${proxy.url}/api/v1/pods`);
    assert.deepEqual([answer.status, answer.headers.get("retry-after"), asked], [429, "1", 0]);
    const body = (await answer.json()) as { readonly kind: string; readonly code: number };
    assert.deepEqual([body.kind, body.code], ["Status", 429]);
    assert.deepEqual(proxy.injected, { throttled: 1 });
  });

  it("does a write whose answer it loses", async (test) => {
    let asked = 0;
    const proxy = await proxied(test, { ...NONE, "lost-answer": 1 }, (_request, response) => {
      asked += 1;
      response.end("done");
    });
    await assert.rejects(fetch(`${proxy.url}/api/v1/pods/one`, { method: "DELETE" }));
    assert.equal(asked, 1);
  });

  it("ends a watch upstream when its client goes away", async (test) => {
    const { promise: ended, resolve: end } = Promise.withResolvers<boolean>();
    const proxy = await proxied(test, NONE, (_request, response) => {
      response.on("close", () => end(true));
      response.write("event\n");
    });
    const stop = new AbortController();
    const answer = await fetch(`${proxy.url}/api/v1/pods?watch=true`, { signal: stop.signal });
    const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
    assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), "event\n");
    stop.abort();
    assert.ok(await ended);
  });
});
