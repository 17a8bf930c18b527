import assert from "node:assert/strict";
import { once } from "node:events";
import type { ClientRequest, IncomingMessage } from "node:http";
import { request as httpRequest } from "node:http";
import { afterEach, beforeEach, describe, it } from "node:test";
import { NO_IDENTITY } from "../coordinator/index.ts";
import type { TxnOperation } from "../coordinator/index.ts";
import { MemoryCoordinator } from "../testing/memory-coordinator.ts";
import type { HttpDoorLimits } from "./limits.ts";
import type { RunningHttpDoor } from "./server.ts";
import { startHttpDoor } from "./server.ts";

/** A response read piece by piece; `delimiter` ends a message. */
class Messages {
  readonly response: IncomingMessage;
  private readonly request: ClientRequest;
  private readonly delimiter: string;
  private readonly chunks: AsyncIterator<Buffer, undefined>;
  private text = "";

  constructor(request: ClientRequest, response: IncomingMessage, delimiter: string) {
    this.request = request;
    this.response = response;
    this.delimiter = delimiter;
    this.chunks = response[Symbol.asyncIterator]() as AsyncIterator<Buffer, undefined>;
  }

  /** The next message, or undefined at the end of the stream. */
  async next(): Promise<string | undefined> {
    for (;;) {
      const end = this.text.indexOf(this.delimiter);
      if (end >= 0) {
        const message = this.text.slice(0, end);
        this.text = this.text.slice(end + this.delimiter.length);
        return message;
      }
      const chunk = await this.chunks.next();
      if (chunk.done === true) return undefined;
      this.text += chunk.value.toString();
    }
  }

  async line(): Promise<Record<string, unknown>> {
    const message = await this.next();
    assert.ok(message !== undefined, "the stream ended");
    return JSON.parse(message) as Record<string, unknown>;
  }

  close(): void {
    this.request.destroy();
  }
}

describe("watching over HTTP", { timeout: 20_000 }, () => {
  let coordinator: MemoryCoordinator;
  let door: RunningHttpDoor;

  async function open(doorLimits: Partial<HttpDoorLimits> = {}): Promise<void> {
    coordinator = new MemoryCoordinator();
    door = await startHttpDoor({ coordinator, host: "127.0.0.1", port: 0, doorLimits });
  }

  beforeEach(() => open());
  afterEach(() => door.close(100));

  async function stream(
    query: string,
    headers: Record<string, string>,
    delimiter: string,
  ): Promise<Messages> {
    const target = {
      host: "127.0.0.1",
      port: door.address.port,
      path: `/v1/watch?${query}`,
      headers,
      agent: false,
    };
    const request = httpRequest(target);
    request.on("error", () => undefined);
    request.end();
    const [response] = (await once(request, "response")) as [IncomingMessage];
    response.on("error", () => undefined);
    return new Messages(request, response, delimiter);
  }

  const ndjson = (query: string): Promise<Messages> =>
    stream(query, { accept: "application/x-ndjson" }, "\n");
  const events = (query: string, headers: Record<string, string> = {}): Promise<Messages> =>
    stream(query, { accept: "text/event-stream", ...headers }, "\n\n");

  async function poll(query: string): Promise<{ status: number; json: Record<string, unknown> }> {
    const messages = await stream(query, {}, "\0");
    let text = "";
    for await (const chunk of messages.response) text += String(chunk);
    return { status: messages.response.statusCode ?? 0, json: JSON.parse(text) as Record<string, unknown> };
  }

  function write(...success: TxnOperation[]): Promise<void> {
    const operation = { kind: "txn" as const, compares: [], success, failure: [] };
    return new Promise((resolve) => {
      coordinator.mutate({ namespace: "default", epoch: 0, identity: NO_IDENTITY, operation }, () =>
        resolve(),
      );
    });
  }

  const put = (key: string, value: string): TxnOperation => ({
    kind: "put",
    key: Buffer.from(key),
    value: Buffer.from(value),
  });
  const remove = (key: string): TxnOperation => ({ kind: "delete", range: { key: Buffer.from(key) } });

  it("streams NDJSON, one line for each revision, with cause and previous state", async () => {
    const messages = await ndjson("prefix=/a/&previous");
    assert.equal(messages.response.headers["content-type"], "application/x-ndjson");
    assert.deepEqual(await messages.line(), { kind: "created", revision: 1 });
    await write(put("/a/1", "x"), put("/a/2", "y"), put("/b", "not watched"));
    await write(remove("/a/1"));
    const both = await messages.line();
    assert.equal(both["revision"], 2);
    assert.deepEqual(
      (both["events"] as { key: string; value: string }[]).map(({ key, value }) => [key, value]),
      [
        ["/a/1", "x"],
        ["/a/2", "y"],
      ],
    );
    const gone = await messages.line();
    assert.equal(gone["revision"], 3);
    const [event] = gone["events"] as Record<string, unknown>[];
    assert.equal(event?.["type"], "delete");
    assert.equal(event["cause"], "client");
    assert.equal((event["previous"] as { value: string }).value, "x");
    messages.close();
  });

  it("streams server-sent events whose ids resume exactly, without a gap or a duplicate", async () => {
    const first = await events("key=/k");
    assert.equal(await first.next(), 'event: created\nid: 1\ndata: {"revision":1}');
    await write(put("/k", "1"));
    const change = (await first.next())!.split("\n");
    assert.deepEqual(change.slice(0, 2), ["event: change", "id: 2"]);
    first.close();
    await write(put("/k", "2"));
    await write(put("/k", "3"));
    const second = await events("key=/k&fromRevision=1", { "last-event-id": "2" });
    assert.match((await second.next())!, /^event: created\nid: 2\n/);
    assert.match((await second.next())!, /^event: change\nid: 3\ndata: .*"value":"2"/);
    assert.match((await second.next())!, /^event: change\nid: 4\ndata: .*"value":"3"/);
    second.close();
  });

  it("tells progress on a quiet stream", async () => {
    await door.close();
    await open({ progressIntervalMs: 5 });
    const messages = await ndjson("key=/quiet");
    assert.equal((await messages.line())["kind"], "created");
    await write(put("/other", ""));
    let line = await messages.line();
    while (line["revision"] !== 2) line = await messages.line();
    assert.equal(line["kind"], "progress");
    messages.close();
  });

  it("ends a stream with the reason: compacted, slow consumer, shutting down", async () => {
    await write(put("/k", "1"));
    const compact = { kind: "compact" as const, revision: coordinator.info().revision };
    const mutation = { namespace: "default", epoch: 0, identity: NO_IDENTITY, operation: compact };
    await new Promise<void>((resolve) => coordinator.mutate(mutation, () => resolve()));
    const compacted = await ndjson("key=/k&fromRevision=1");
    await compacted.line();
    assert.deepEqual(await compacted.line(), { kind: "end", reason: "compacted", compactRevision: 2 });
    assert.equal(await compacted.next(), undefined);

    const slow = await ndjson("key=/k");
    await slow.line();
    coordinator.endWatchesSlow();
    assert.deepEqual(await slow.line(), { kind: "end", reason: "slow-consumer", resumeRevision: 3 });

    const open1 = await events("key=/k");
    await open1.next();
    await door.close(100);
    assert.match((await open1.next())!, /^event: end\ndata: {"reason":"shutting-down"/);
    assert.equal(await open1.next(), undefined);
  });

  it("holds back for a client that does not read, and then delivers every revision in order", async () => {
    const messages = await ndjson("key=/k");
    await messages.line();
    messages.response.pause();
    const value = "x".repeat(64 * 1024);
    const writes = 100;
    for (let i = 0; i < writes; i += 1) await write(put("/k", value));
    for (let i = 0; i < writes; i += 1) assert.equal((await messages.line())["revision"], i + 2);
    messages.close();
  });

  it("cancels the watch of a client that went away", async () => {
    const messages = await ndjson("key=/k");
    await messages.line();
    messages.close();
    while (coordinator.openWatches > 0) await poll("key=/none&wait=1ms");
  });

  it("answers a long poll once, with the revision to go on from", async () => {
    const waiting = poll("key=/k&wait=10s");
    while (coordinator.openWatches === 0) await poll("key=/none&wait=1ms");
    await write(put("/k", "1"));
    const first = await waiting;
    assert.deepEqual(
      { revision: first.json["revision"], next: first.json["next"] },
      { revision: 2, next: 3 },
    );
    assert.equal((first.json["changes"] as { revision: number }[])[0]?.revision, 2);
    const known = await poll("key=/k&wait=10s&fromRevision=2");
    assert.deepEqual(known.json, first.json);
    await write(put("/other", ""));
    const nothing = await poll("key=/k&wait=5ms&fromRevision=3");
    assert.deepEqual(nothing.json, { changes: [], revision: 3, next: 4 });
  });

  it("answers a long poll from a compacted revision with 410, and from the door's end with nothing", async () => {
    await write(put("/k", "1"));
    const compact = { kind: "compact" as const, revision: coordinator.info().revision };
    coordinator.mutate(
      { namespace: "default", epoch: 0, identity: NO_IDENTITY, operation: compact },
      () => undefined,
    );
    const gone = await poll("key=/k&wait=10s&fromRevision=1");
    assert.equal(gone.status, 410);
    assert.equal(gone.json["code"], "compacted");
    assert.equal(gone.json["compactRevision"], 2);
    const waiting = poll("key=/k&wait=10s");
    while (coordinator.openWatches === 0) await poll("key=/none&wait=1ms");
    await door.close();
    assert.deepEqual((await waiting).json, { changes: [], revision: 2, next: 3 });
  });

  it("refuses what makes no sense, and one watch too many", async () => {
    await door.close();
    await open({ watchesMax: 1 });
    const status = async (query: string): Promise<[number, unknown]> => {
      const answer = await poll(query);
      return [answer.status, answer.json["code"]];
    };
    assert.deepEqual(await status("wait=1s"), [400, "invalid-argument"]);
    assert.deepEqual(await status("key=/a&prefix=/b&wait=1s"), [400, "invalid-argument"]);
    assert.deepEqual(await status("key=/a&wait=1h"), [400, "invalid-argument"]);
    assert.deepEqual(await status("key=/a&wait=10m"), [400, "invalid-argument"]);
    assert.deepEqual(await status("key=/a&omit=all&wait=1s"), [400, "invalid-argument"]);
    assert.deepEqual(await status("key=&wait=1s"), [400, "invalid-argument"]);
    assert.deepEqual(await status("key=/a"), [406, "not-acceptable"]);
    const held = await ndjson("prefix=");
    await held.line();
    assert.deepEqual(await status("key=/a&wait=1s"), [503, "too-many-watches"]);
    held.close();
  });
});
