import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HELP, parseOptions, SUITES } from "./options.ts";
import { WORKLOADS } from "./workloads.ts";

const names = (args: readonly string[]): readonly string[] | undefined =>
  parseOptions(args)?.workloads.map((workload) => workload.name);

describe("the bench's options", () => {
  it("run every row of the table on etcd and Lockstep by default, and keep the result", () => {
    const options = parseOptions([]);
    assert.deepEqual(options?.workloads, WORKLOADS);
    assert.deepEqual(options.systems, ["etcd", "lockstep"]);
    assert.deepEqual(options.suites, ["table", "failover", "large", "sessions", "startup", "locks"]);
    assert.equal(options.rounds, 3);
    assert.equal(options.isFull, true);
  });

  it("take a name for all workloads that begin with it, and always fill the keys", () => {
    assert.deepEqual(names(["--only", "put,renew"]), ["fill", "put-1", "put-64", "put-1000", "renew"]);
    assert.deepEqual(names(["--only", "put-64"]), ["fill", "put-64"]);
  });

  it("leave out what takes minutes when it is to be quick, unless it is asked for", () => {
    assert.ok(!names(["--quick"])?.includes("expiry"));
    assert.deepEqual(parseOptions(["--quick"])?.suites, ["table"]);
    assert.ok(names(["--quick", "--only", "expiry"])?.includes("expiry"));
  });

  it("take suites by name, in their own order, and all of them", () => {
    assert.deepEqual(parseOptions(["--suite", "growth,failover"])?.suites, ["failover", "growth"]);
    assert.deepEqual(parseOptions(["--suite", "all"])?.suites, SUITES);
    assert.throws(() => parseOptions(["--suite", "tables"]), /no suite "tables".*failover/);
  });

  it("never keep the result of a part, or of a run that was scaled down", () => {
    for (const args of [
      ["--quick"],
      ["--only", "put"],
      ["--scale", "10"],
      ["--skip-etcd"],
      ["--suite", "large"],
    ]) {
      assert.equal(parseOptions(args)?.isFull, false, args.join(" "));
    }
    assert.equal(parseOptions(["--suite", "all"])?.isFull, true);
  });

  it("name what exists when asked for a workload that does not", () => {
    assert.throws(() => parseOptions(["--only", "pot"]), /no workload "pot".*put-64/);
  });

  it("refuse numbers that are not above 0", () => {
    for (const flag of ["--seconds", "--repeats", "--kills", "--scale"]) {
      assert.throws(() => parseOptions([flag, "0"]), new RegExp(flag));
      assert.throws(() => parseOptions([flag, "x"]), new RegExp(flag));
    }
  });

  it("leave the choice of systems, but not of none", () => {
    assert.deepEqual(parseOptions(["--skip-etcd"])?.systems, ["lockstep"]);
    assert.deepEqual(parseOptions(["--etcd-api"])?.systems, ["etcd", "lockstep", "lockstep-etcd-api"]);
    assert.throws(() => parseOptions(["--skip-etcd", "--skip-lockstep"]), /nothing left/);
  });

  it("teach the name of every workload and suite in the help", () => {
    for (const { name } of WORKLOADS) assert.ok(HELP.includes(name), name);
    for (const suite of SUITES) assert.ok(HELP.includes(suite), suite);
  });
});
