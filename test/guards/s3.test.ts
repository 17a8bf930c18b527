// What the guard does on a real S3-compatible server, one situation at a time, and under races.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import {
  GuardError,
  requireConditionalWrites,
  S3Guard,
  StaleTokenError,
  type S3Fetch,
  type S3GuardOptions,
  type S3Response,
} from "@lockstep/client/guards/s3";
import { assertGuarded, decreases, race, raceSeed } from "./support/race.ts";
import { S3Server } from "./support/s3-server.ts";

const found = await S3Server.find();
const FILE = "s3.test.ts";
const TOKEN_MAX = Number.MAX_SAFE_INTEGER;
const WRITERS = 6;
const WRITES_EACH = 20;
/** Everybody writes the same object at once here. */
const ATTEMPTS_MAX = 200;

describe("an S3 guard", "missing" in found ? { skip: found.missing } : {}, () => {
  let server: S3Server;
  let keys = 0;

  before(async () => {
    assert("path" in found);
    server = await S3Server.start(found.path);
  });
  after(() => server.stop());

  const newKey = (): string => `object-${String((keys += 1))}`;
  const urlOf = (key: string): string => `${server.bucket}/${key}`;
  const guardOf = (key: string, options: Partial<S3GuardOptions> = {}, fetch = server.fetch): S3Guard =>
    new S3Guard(fetch, { url: urlOf(key), ...options });
  const textOf = async (guard: S3Guard): Promise<string | undefined> => {
    const object = await guard.get();
    return object === undefined ? undefined : Buffer.from(object.body).toString();
  };

  it("runs against a server that keeps conditions", async () => {
    await requireConditionalWrites(server.fetch, urlOf("scratch"));
  });

  it("finds out a server that ignores conditions", async () => {
    const ignoring: S3Fetch = (url, { headers, ...request }) => {
      const kept = Object.entries(headers).filter(([name]) => !name.startsWith("if-"));
      return server.fetch(url, { ...request, headers: Object.fromEntries(kept) });
    };
    await assert.rejects(requireConditionalWrites(ignoring, urlOf("scratch")), { code: "guard-unsupported" });
  });

  it("writes for the owner, and refuses whoever was the owner", async () => {
    const guard = guardOf(newKey());
    assert.equal(await guard.get(), undefined);
    await guard.put(7, "seven", { headers: { "content-type": "text/plain" } });
    await assert.rejects(guard.put(5, "five"), (error) => {
      assert(error instanceof StaleTokenError);
      assert.deepEqual([error.resource, error.offered, error.seen], [guard.resource, 5, 7]);
      return true;
    });
    assert.equal(await textOf(guard), "seven");
    await guard.put(7, "seven again");
    assert.equal(await textOf(guard), "seven again");
    assert.equal((await guard.get())?.token, 7);
    assert.equal(guard.rejections, 1);
  });

  it("is sealed by the new owner, with bytes and metadata as they were", async () => {
    const key = newKey();
    const guard = guardOf(key);
    const headers = { "content-type": "text/plain", "x-amz-meta-author": "somebody" };
    await guard.put(5, "five", { headers });
    await guard.seal(7);
    await assert.rejects(guard.put(5, "late"), StaleTokenError);
    assert.equal(await textOf(guard), "five");
    const { headers: kept } = await server.fetch(urlOf(key), { method: "HEAD", headers: {} });
    assert.equal(kept.get("content-type"), "text/plain");
    assert.equal(kept.get("x-amz-meta-author"), "somebody");
    await guard.update(7, increment, { headers: { "Content-Type": "text/html" } });
    const { headers: replaced } = await server.fetch(urlOf(key), { method: "HEAD", headers: {} });
    assert.equal(replaced.get("content-type"), "text/html");
    assert.equal(replaced.get("x-amz-meta-author"), "somebody");
  });

  it("compares the largest tokens exactly, and takes nothing that is not a token", async () => {
    const guard = guardOf(newKey());
    await guard.put(TOKEN_MAX, "most");
    await assert.rejects(guard.put(TOKEN_MAX - 1, "less"), { seen: TOKEN_MAX });
    for (const token of [0, -1, 1.5, TOKEN_MAX + 1]) await assert.rejects(guard.put(token, ""), TypeError);
  });

  it("takes any bytes, none among them", async () => {
    const guard = guardOf(newKey());
    for (const body of [Uint8Array.from([0, 255, 10, 128]), new Uint8Array()]) {
      await guard.put(7, body);
      assert.deepEqual(Buffer.from((await guard.get())?.body ?? []), Buffer.from(body));
    }
  });

  it("refuses an object without a mark, unless it is to be adopted", async () => {
    const key = newKey();
    const body = new TextEncoder().encode("old");
    await server.fetch(urlOf(key), { method: "PUT", headers: {}, body });
    await assert.rejects(guardOf(key).put(7, "seven"), { code: "guard-unmarked", outcome: "not-applied" });
    await assert.rejects(guardOf(key).get(), { code: "guard-unmarked" });
    const adopting = guardOf(key, { adopt: true });
    assert.equal(await textOf(adopting), "old");
    await adopting.seal(7);
    assert.equal(await textOf(guardOf(key)), "old");
  });

  it("a late write of the earlier owner misses, also when the new one stored the same bytes again", async () => {
    const key = newKey();
    await guardOf(key).put(5, "same");
    const { fetch, caught, release } = holdingPuts(server.fetch);
    const late = guardOf(key, {}, fetch).put(5, "late");
    await caught;
    await guardOf(key).put(7, "same");
    release();
    await assert.rejects(late, StaleTokenError);
    assert.equal(await textOf(guardOf(key)), "same");
  });

  it("a late first write of the earlier owner misses when the new one has made the object meanwhile", async () => {
    const key = newKey();
    const { fetch, caught, release } = holdingPuts(server.fetch);
    const late = guardOf(key, {}, fetch).put(5, "late");
    await caught;
    await guardOf(key).put(7, "seven");
    release();
    await assert.rejects(late, StaleTokenError);
    assert.equal(await textOf(guardOf(key)), "seven");
  });

  it("the same without a trailer goes wrong on this server, whose ETags are made from the bytes: so the trailer is needed", async () => {
    const key = newKey();
    const options = { stamp: "unique-etags" } as const;
    await guardOf(key, options).put(5, "same");
    const { fetch, caught, release } = holdingPuts(server.fetch);
    const late = guardOf(key, options, fetch).put(5, "late");
    await caught;
    await guardOf(key, options).put(7, "same");
    release();
    await late;
    assert.equal(await textOf(guardOf(key, options)), "late");
  });

  it("a stamp of one's own keeps a JSON document a JSON document", async () => {
    const key = newKey();
    const guard = guardOf(key, {
      stamp: (body, token, write) => {
        const document = JSON.parse(Buffer.from(body).toString()) as object;
        return Buffer.from(JSON.stringify({ ...document, fence: { token, write } }));
      },
    });
    await guard.put(7, JSON.stringify({ rows: 12 }));
    const stored = JSON.parse((await server.versions(key))[0] ?? "") as { fence: { token: number } };
    assert.equal(stored.fence.token, 7);
    await assert.rejects(guard.put(5, "{}"), StaleTokenError);
  });

  it("an update whose answer was lost is not made twice", async () => {
    const key = newKey();
    await guardOf(key).put(7, "1");
    const flaky = losingAnswers(server.fetch, 1);
    await guardOf(key, {}, flaky).update(7, increment);
    assert.equal(await textOf(guardOf(key)), "2");
  });

  it("an update whose answer was lost, and that was written over since, has an unknown outcome", async () => {
    const key = newKey();
    await guardOf(key).put(7, "1");
    const flaky = losingAnswers(server.fetch, 1, () => guardOf(key).put(7, "10"));
    await assert.rejects(guardOf(key, {}, flaky).update(7, increment), {
      code: "guard-failed",
      outcome: "unknown",
    });
    assert.equal(await textOf(guardOf(key)), "10");
  });

  it("a refusal of the server ends at once, with its status and without the address's query", async () => {
    const refusing = (method: string, status: number): S3Fetch => {
      const response = (): S3Response => new Response(null, { status });
      return (url, request) =>
        request.method === method ? Promise.resolve(response()) : server.fetch(url, request);
    };
    for (const method of ["HEAD", "PUT"]) {
      const guard = guardOf(`${newKey()}?secret=1`, {}, refusing(method, 403));
      await assert.rejects(guard.put(7, "seven"), (error) => {
        assert(error instanceof GuardError);
        assert.deepEqual([error.code, error.outcome], ["guard-failed", "not-applied"]);
        assert.match(error.message, /403/);
        return true;
      });
      assert(!guard.resource.includes("secret"));
    }
    const nowhere = new S3Guard(server.fetch, { url: `${server.bucket}-that-is-not-there/key` });
    await assert.rejects(nowhere.put(7, "seven"), { code: "guard-failed", outcome: "not-applied" });
    const busy = guardOf(newKey(), { attemptsMax: 3 }, refusing("PUT", 503));
    await assert.rejects(busy.put(7, "seven"), { code: "guard-failed", outcome: "unknown" });
    const lost = guardOf(newKey(), { attemptsMax: 3 }, refusing("PUT", 412));
    await assert.rejects(lost.put(7, "seven"), { code: "guard-contended", outcome: "not-applied" });
  });

  it("stops when it is told to", async () => {
    const guard = guardOf(newKey());
    const signal = AbortSignal.abort(new Error("enough"));
    await assert.rejects(guard.put(7, "seven", { signal }), { code: "guard-failed", outcome: "not-applied" });
    assert.equal(await guard.get(), undefined);
  });

  it("does not let a trailer spoil a compressed object, nor its own headers be set", () => {
    const guard = guardOf(newKey());
    const withHeader = (name: string): Promise<void> => guard.put(7, "", { headers: { [name]: "*" } });
    return Promise.all(
      ["Content-Encoding", "If-Match", "if-none-match", "x-amz-meta-lockstep-token"].map((name) =>
        assert.rejects(withHeader(name), TypeError),
      ),
    ).then(() => undefined);
  });

  it("accepted tokens never decrease, in the order of the server's versions", async (t) => {
    const key = newKey();
    const guards = Array.from({ length: WRITERS }, () => guardOf(key, { attemptsMax: ATTEMPTS_MAX }));
    const result = await race({
      seed: raceSeed(FILE, (line) => t.diagnostic(line)),
      writers: WRITERS,
      writesEach: WRITES_EACH,
      write: async (writer, token) => {
        try {
          // The bodies tell nothing apart: that is the guard's affair.
          await guards[writer]?.put(token, "same");
          return true;
        } catch (error) {
          if (error instanceof StaleTokenError) return false;
          throw error;
        }
      },
    });
    const versions = await server.versions(key);
    const tokens = versions.map((body) => Number(/^lockstep-token:(\d{16}):/m.exec(body)?.[1]));
    assertGuarded(result, tokens);
    assert.equal(
      guards.reduce((sum, { rejections }) => sum + rejections, 0),
      result.refused,
    );
  });

  it("updates under races lose none and make none twice, while ownership passes on", async (t) => {
    const key = newKey();
    const result = await race({
      seed: raceSeed(FILE, (line) => t.diagnostic(line)),
      writers: WRITERS,
      writesEach: WRITES_EACH / 2,
      write: async (_, token) => {
        try {
          await guardOf(key, { attemptsMax: ATTEMPTS_MAX }).update(token, increment);
          return true;
        } catch (error) {
          if (error instanceof StaleTokenError) return false;
          throw error;
        }
      },
    });
    assert.equal(await textOf(guardOf(key)), String(result.accepted));
  });

  it("the same race with a look and a plain write shows decreases, so the condition is what makes it safe", async (t) => {
    const key = newKey();
    await race({
      seed: raceSeed(FILE, (line) => t.diagnostic(line)),
      writers: WRITERS,
      writesEach: WRITES_EACH,
      write: async (_, token) => {
        const look = await server.fetch(urlOf(key), { method: "HEAD", headers: {} });
        if (Number(look.headers.get("x-amz-meta-token") ?? 0) > token) return false;
        const headers = { "x-amz-meta-token": String(token) };
        await server.fetch(urlOf(key), {
          method: "PUT",
          headers,
          body: new TextEncoder().encode(String(token)),
        });
        return true;
      },
    });
    assert(decreases((await server.versions(key)).map(Number)) > 0);
  });

  it("the same race without any look shows decreases, so the test bites", async (t) => {
    const key = newKey();
    await race({
      seed: raceSeed(FILE, (line) => t.diagnostic(line)),
      writers: WRITERS,
      writesEach: WRITES_EACH,
      write: async (_, token) => {
        const body = new TextEncoder().encode(String(token));
        await server.fetch(urlOf(key), { method: "PUT", headers: {}, body });
        return true;
      },
    });
    assert(decreases((await server.versions(key)).map(Number)) > 0);
  });
});

const increment = (current: Uint8Array | undefined): string =>
  String(Number(Buffer.from(current ?? []).toString()) + 1);

/** Holds the first PUT back until it is released: a write that arrives late. */
function holdingPuts(fetch: S3Fetch): { fetch: S3Fetch; caught: Promise<void>; release: () => void } {
  const caught = Promise.withResolvers<undefined>();
  const released = Promise.withResolvers<undefined>();
  let first = true;
  return {
    fetch: async (url, request) => {
      if (request.method === "PUT" && first) {
        first = false;
        caught.resolve(undefined);
        await released.promise;
      }
      return fetch(url, request);
    },
    caught: caught.promise,
    release: () => released.resolve(undefined),
  };
}

/** The first PUTs take effect and nobody hears of it. */
function losingAnswers(
  fetch: S3Fetch,
  count: number,
  meanwhile = (): Promise<void> => Promise.resolve(),
): S3Fetch {
  let left = count;
  return async (url, request) => {
    const response = await fetch(url, request);
    if (request.method !== "PUT" || left === 0) return response;
    left -= 1;
    await response.arrayBuffer();
    await meanwhile();
    throw new TypeError("fetch failed");
  };
}
