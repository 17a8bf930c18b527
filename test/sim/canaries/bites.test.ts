/** Two canaries that no test beside the production code would see: that they change what they say. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { importOf, runWith } from "./testing.ts";

/** Sixty writes on three members, one batch each, then `then` with the `cluster`. */
function afterWrites(then: string): string {
  return `
    ${importOf("Cluster", "cell/src/replica/testing/cluster.ts")}
    ${importOf("CellState", "cell/src/replica/state.ts")}
    const rowsOf = (store) => store.scan("history", { from: new Uint8Array(0), limit: 1000 }).length;
    const cluster = new Cluster();
    const leader = cluster.elect(1);
    for (let put = 0; put < 60; put += 1) {
      leader.put("k" + String(put));
      cluster.pass(1);
    }
    cluster.pass(5);
    ${then}
  `;
}

const SHOW_ROWS = afterWrites(
  'process.stdout.write(cluster.members.map(({ state }) => rowsOf(state.store)).join(" "));',
);

/** A power cut keeps a share of the store's batches: whether there are ever rows that its applied state does not know. */
const SHOW_TORN = afterWrites(`
  let torn = false;
  for (let at = 0; at < 3; at += 1) {
    const { generations } = cluster.members[at];
    generations.crash(() => [0.31, 0.5, 0.77][at]);
    const { machine } = new CellState(generations.current);
    torn ||= rowsOf(generations.current) !== machine.revision - 1;
  }
  process.stdout.write(torn ? "torn" : "whole");
`);

describe("canaries that only the simulator sees", { concurrency: 2 }, () => {
  it("skip-one-batch: member 2 lacks one batch, and nobody stops", async () => {
    assert.equal((await runWith("", SHOW_ROWS)).stdout, "60 60 60");
    assert.equal((await runWith("skip-one-batch", SHOW_ROWS)).stdout, "60 59 60");
  });

  it("skip-applied-index: a power cut leaves rows that the applied index does not cover", async () => {
    assert.equal((await runWith("", SHOW_TORN)).stdout, "whole");
    assert.equal((await runWith("skip-applied-index", SHOW_TORN)).stdout, "torn");
  });
});
