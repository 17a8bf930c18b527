// The examples of docs/guards.md, as they stand there, against the real servers.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { freePortBlock } from "../support/ports.ts";
import { run } from "../support/run.ts";
import { PostgresServer } from "./support/postgres-server.ts";
import type { Found } from "./support/programs.ts";
import { RedisServer } from "./support/redis-server.ts";
import { S3Server } from "./support/s3-server.ts";

const ROOT = join(import.meta.dirname, "../..");
const EXAMPLE_MS_MAX = 60_000;
const LOCK = "const lock = { token: 8123 };\n";

interface Stage {
  readonly env: Readonly<Record<string, string>>;
  readonly stop: () => Promise<void>;
}

/** What an example runs against, by the word in its first line. */
const STAGES: Readonly<
  Record<string, { readonly find: () => Promise<Found>; readonly start: (path: string) => Promise<Stage> }>
> = {
  register: {
    find: () => Promise.resolve({ path: "" }),
    start: () => Promise.resolve({ env: {}, stop: () => Promise.resolve() }),
  },
  postgres: {
    find: () => PostgresServer.find(),
    start: async (path) => {
      const server = await PostgresServer.start(path);
      const { host = "", user = "", database = "" } = server.config;
      return { env: { PGHOST: host, PGUSER: user, PGDATABASE: database }, stop: () => server.stop() };
    },
  },
  redis: {
    find: () => RedisServer.find(),
    start: async (path) => {
      const port = String(await freePortBlock(1));
      const server = await RedisServer.start(path, ["--port", port]);
      return { env: { REDIS_URL: `redis://127.0.0.1:${port}` }, stop: () => server.stop() };
    },
  },
  s3: {
    find: () => S3Server.find(),
    start: async (path) => {
      const server = await S3Server.start(path);
      const env = { BUCKET_URL: server.bucket, AWS_ACCESS_KEY_ID: "test", AWS_SECRET_ACCESS_KEY: "test" };
      return { env, stop: () => server.stop() };
    },
  },
};

const page = readFileSync(join(ROOT, "docs/guards.md"), "utf8");
const examples = [...page.matchAll(/^```ts\n\/\/ run: (\w+)\n(.*?)^```$/gms)];

describe("an example of docs/guards.md runs", () => {
  it("for every guard", () => {
    const stages = new Set(examples.map(([, stage]) => stage));
    assert.deepEqual([...stages].sort(), Object.keys(STAGES).sort());
  });

  for (const [index, [, name = "", code = ""]] of examples.entries())
    it(`number ${String(index + 1)}, with ${name}`, async (t) => {
      const stage = STAGES[name];
      assert(stage !== undefined);
      const found = await stage.find();
      if ("missing" in found) {
        t.skip(found.missing);
        return;
      }
      const { env, stop } = await stage.start(found.path);
      try {
        const args = ["--input-type=module-typescript", "--eval", LOCK + code];
        const options = { cwd: ROOT, env: { ...process.env, ...env }, timeoutMs: EXAMPLE_MS_MAX };
        const ran = await run(process.execPath, args, options);
        assert.equal(ran.code, 0, ran.err);
        assert.doesNotMatch(ran.err, /not the owner/);
        if (name === "s3") assert.match(ran.out, /^8123 part-0001\n/);
        if (name === "register") assert.match(ran.out, /^done 8123 0\n/);
      } finally {
        await stop();
      }
    });
});
