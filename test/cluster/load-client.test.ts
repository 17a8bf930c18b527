import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import { until } from "../support/until.ts";
import type { LoadReport } from "../../e2e/src/load/load.ts";
import type { Verification } from "../../e2e/src/load/verify.ts";

const MAIN = new URL("../../e2e/src/load/main.ts", import.meta.url).pathname;
const ROUNDS = 2;

class LoadProgram {
  readonly #child: ReturnType<typeof spawn>;
  readonly #url: string;

  private constructor(child: ReturnType<typeof spawn>, port: string) {
    this.#child = child;
    this.#url = `http://127.0.0.1:${port}`;
  }

  static async start(endpoints: readonly string[]): Promise<LoadProgram> {
    const args = [MAIN, "--endpoints", endpoints.join(","), "--writes", "200", "--watch-renew-ms", "1000"];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    const lines = createInterface({ input: child.stdout });
    const [line] = (await Promise.race([once(lines, "line"), once(lines, "close")])) as [string?];
    const port = /^listening on port (\d+)$/.exec(line ?? "")?.[1];
    if (port === undefined) throw new Error("the load ended before it listened");
    return new LoadProgram(child, port);
  }

  async ask<T>(method: string, path: string): Promise<T> {
    const response = await fetch(`${this.#url}${path}`, { method });
    if (!response.ok) throw new Error(`${path}: ${String(response.status)} ${await response.text()}`);
    return (await response.json()) as T;
  }

  /** Waits until that many more writes were acknowledged. */
  async progress(more: number): Promise<void> {
    const acknowledged = async (): Promise<number> =>
      (await this.ask<LoadReport>("GET", "/report")).total.acknowledged;
    const goal = (await acknowledged()) + more;
    await until(`${String(goal)} writes`, async () => ((await acknowledged()) >= goal ? true : undefined));
  }

  async stop(): Promise<void> {
    this.#child.kill("SIGTERM");
    if (this.#child.exitCode === null) await once(this.#child, "exit");
  }
}

describe("the load client on a cell whose leader is killed (R=3)", () => {
  let cell: TestCell | undefined;
  let load: LoadProgram | undefined;
  before(async () => {
    cell = await TestCell.start(3);
    load = await LoadProgram.start(cell.endpoints);
  });
  after(async () => {
    await load?.stop();
    await cell?.stop();
  });

  it("writes, locks and watches go on, and nothing that was promised is missing", async (t) => {
    assert.ok(cell !== undefined && load !== undefined);
    const program = load;
    await until("it is ready", async () => program.ask<object>("GET", "/readyz"));
    for (let round = 1; round <= ROUNDS; round += 1) {
      await load.progress(100);
      await load.ask("POST", `/mark?name=kill-${String(round)}`);
      const leader = await cell.leader();
      await leader.kill();
      await load.progress(100);
      leader.start();
    }
    const { verification, report } = await load.ask<{ verification: Verification; report: LoadReport }>(
      "GET",
      "/verify",
    );
    const { total, current, locks, watch, violations } = report;
    t.diagnostic(
      `${String(total.acknowledged)} writes acknowledged, ${String(total.unknown)} unknown, ${String(total.failed)} refused, ${String(locks.acquired)} locks, ${String(watch.events)} events, ${String(watch.resumed)} resumed, longest gap ${String(total.longestWriteGapMs)} ms, p99 ${String(total.p99Ms)} ms`,
    );
    assert.deepEqual(violations, { count: 0, kept: [] });
    assert.ok(verification.complete, verification.reason);
    assert.equal(current.name, `kill-${String(ROUNDS)}`);
    assert.ok(locks.acquired > 0);
    assert.equal(watch.awaited, 0);
    assert.ok(watch.events >= total.acknowledged);
  });
});
