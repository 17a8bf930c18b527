import assert from "node:assert/strict";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { describe, it } from "node:test";
import { Registry } from "prom-client";
import { startOpsServer } from "./ops-server.ts";

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

describe("the port for probes", () => {
  it("a member without a leader is alive, since a restart cures nothing, and not ready, saying why", async () => {
    let reason: string | undefined = "no leader known";
    const port = await freePort();
    const server = await startOpsServer({
      host: "127.0.0.1",
      port,
      registry: new Registry(),
      notReady: () => reason,
    });
    const ask = async (path: string): Promise<readonly [number, string]> => {
      const answer = await fetch(`http://127.0.0.1:${String(port)}${path}`);
      return [answer.status, await answer.text()];
    };
    try {
      assert.deepEqual(await ask("/livez"), [200, "ok\n"]);
      assert.deepEqual(await ask("/readyz"), [503, "not ready: no leader known\n"]);
      reason = undefined;
      assert.deepEqual(await ask("/readyz"), [200, "ok\n"]);
    } finally {
      await server.close();
    }
  });
});
