import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HELP, parseOptions } from "./options.ts";
import { WORKLOADS } from "./workloads.ts";

const names = (args: readonly string[]): readonly string[] | undefined =>
  parseOptions(args)?.workloads.map((workload) => workload.name);

describe("the bench's options", () => {
  it("run everything on etcd and Lockstep by default", () => {
    const options = parseOptions([]);
    assert.deepEqual(options?.workloads, WORKLOADS);
    assert.deepEqual(options.systems, ["etcd", "lockstep"]);
    assert.equal(options.rounds, 3);
  });

  it("take a name for all workloads that begin with it, and always fill the keys", () => {
    assert.deepEqual(names(["--only", "put,renew"]), ["fill", "put-1", "put-64", "put-1000", "renew"]);
    assert.deepEqual(names(["--only", "put-64"]), ["fill", "put-64"]);
  });

  it("name what exists when asked for a workload that does not", () => {
    assert.throws(() => parseOptions(["--only", "pot"]), /no workload "pot".*put-64/);
  });

  it("refuse numbers that are not above 0", () => {
    assert.throws(() => parseOptions(["--seconds", "0"]), /--seconds/);
    assert.throws(() => parseOptions(["--repeats", "x"]), /--repeats/);
  });

  it("leave the choice of systems, but not of none", () => {
    assert.deepEqual(parseOptions(["--skip-etcd"])?.systems, ["lockstep"]);
    assert.deepEqual(parseOptions(["--etcd-api"])?.systems, ["etcd", "lockstep", "lockstep-etcd-api"]);
    assert.throws(() => parseOptions(["--skip-etcd", "--skip-lockstep"]), /nothing left/);
  });

  it("teach every workload's name in the help", () => {
    for (const { name } of WORKLOADS) assert.ok(HELP.includes(name), name);
  });
});
