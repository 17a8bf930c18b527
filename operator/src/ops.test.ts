import assert from "node:assert/strict";
import { it } from "node:test";
import { Registry } from "prom-client";
import { createPrometheusMetrics } from "./kube/metrics.ts";
import { startOpsServer } from "./ops.ts";

it("probes say what is wrong in words, and metrics show what was told", async () => {
  const registry = new Registry();
  const metrics = createPrometheusMetrics(registry, "operator_");
  let wrong: string | undefined = "widgets: not listed yet";
  const server = await startOpsServer({ host: "127.0.0.1", port: 0, registry, notReady: () => wrong });
  const get = async (path: string, method = "GET"): Promise<[number, string]> => {
    const answer = await fetch(`http://127.0.0.1:${server.port}${path}`, { method });
    return [answer.status, await answer.text()];
  };
  try {
    assert.deepEqual(await get("/readyz"), [503, "not ready: widgets: not listed yet\n"]);
    assert.deepEqual(await get("/healthz"), [200, "ok\n"]);
    wrong = undefined;
    assert.deepEqual(await get("/readyz?verbose"), [200, "ok\n"]);
    assert.equal((await get("/elsewhere"))[0], 404);
    assert.equal((await get("/healthz", "POST"))[0], 405);
    metrics.request({ verb: "get", resource: "widgets", outcome: "200", durationMs: 30 });
    metrics.queueDepth("cells", 3);
    metrics.queueWorked("cells", "failed", 10);
    metrics.leading("operator", true);
    const forget = metrics.watchAge("widgets", () => 4_000);
    const [, text] = await get("/metrics");
    assert.match(text, /operator_api_request_seconds_count\{verb="get",resource="widgets",outcome="200"\} 1/);
    assert.match(text, /operator_queue_keys\{queue="cells"\} 3/);
    assert.match(text, /operator_leading\{lease="operator"\} 1/);
    assert.match(text, /operator_informer_age_seconds\{resource="widgets"\} 4/);
    forget();
    assert.doesNotMatch((await get("/metrics"))[1], /informer_age_seconds\{/);
  } finally {
    await server.close();
  }
});
