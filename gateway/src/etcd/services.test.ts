import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Metadata, status } from "@grpc/grpc-js";
import type { reflection } from "@lockstep/proto/etcd";
import { etcd, etcdElection, etcdLock, health } from "@lockstep/proto/etcd";
import type { EtcdBench } from "../testing/etcd-client.ts";
import { ask, bytes, openEtcdBench, put, range, refusal } from "../testing/etcd-client.ts";
import { ManualClock } from "../testing/memory-coordinator.ts";
import { ControlError } from "./control.ts";
import type { ControlMember, EtcdControl } from "./control.ts";
import { secondsOf } from "./lease.ts";

describe("etcdserverpb.Lease", () => {
  const clock = new ManualClock();
  let bench: EtcdBench;
  before(async () => {
    bench = await openEtcdBench({}, { clock });
  });
  after(() => bench.close());
  const lease = (): etcd.LeaseClient => bench.clients.lease;
  const grant = (TTL: number, ID = "0"): Promise<etcd.LeaseGrantResponse> =>
    ask(lease(), etcd.LeaseService.leaseGrant, { TTL, ID });

  it("A9: grants what is asked, raised to the least, under the asked id", async () => {
    assert.equal((await grant(1)).TTL, 2);
    assert.equal((await grant(0)).TTL, 2);
    assert.equal((await grant(-5)).TTL, 2);
    const chosen = await grant(60, "9007199254740995");
    assert.deepEqual([chosen.ID, chosen.TTL], ["9007199254740995", 60]);
    assert.deepEqual(await refusal(grant(60, "9007199254740995")), {
      code: status.FAILED_PRECONDITION,
      details: "etcdserver: lease already exists",
    });
    assert.deepEqual(await refusal(grant(9_000_000_001)), {
      code: status.OUT_OF_RANGE,
      details: "etcdserver: too large lease TTL",
    });
    assert.equal((await refusal(grant(60, "-3"))).code, status.INVALID_ARGUMENT);
  });

  it("A9: tells what is left, with keys; of one that is not there -1", async () => {
    const { ID } = await grant(60);
    const { kv } = bench.clients;
    for (const key of ["lease/b", "lease/a"]) await ask(kv, etcd.KVService.put, put(key, "", { lease: ID }));
    clock.advance(500);
    const told = await ask(lease(), etcd.LeaseService.leaseTimeToLive, { ID, keys: true });
    assert.deepEqual([told.ID, told.TTL, told.grantedTTL], [ID, 59, 60]);
    assert.deepEqual(told.keys.map(String), ["lease/a", "lease/b"]);
    for (const absent of ["4711", "0", "-1"]) {
      const none = await ask(lease(), etcd.LeaseService.leaseTimeToLive, { ID: absent, keys: true });
      assert.deepEqual([none.ID, none.TTL, none.grantedTTL], [absent, -1, 0]);
    }
  });

  it("A9: a revoked lease takes its keys with it, and is not found again", async () => {
    const { ID } = await grant(60);
    const { kv } = bench.clients;
    await ask(kv, etcd.KVService.put, put("revoked", "", { lease: ID }));
    const before = bench.coordinator.info().revision;
    const done = await ask(lease(), etcd.LeaseService.leaseRevoke, { ID });
    assert.equal(done.header?.revision, before + 1);
    assert.equal((await ask(kv, etcd.KVService.range, range("revoked"))).count, 0);
    for (const absent of [ID, "0"]) {
      assert.deepEqual(await refusal(ask(lease(), etcd.LeaseService.leaseRevoke, { ID: absent })), {
        code: status.NOT_FOUND,
        details: "etcdserver: requested lease not found",
      });
    }
  });

  it("lists all leases, page after page", async () => {
    const granted: string[] = [];
    for (let i = 0; i < 5; i += 1) granted.push((await grant(60)).ID);
    const { leases } = await ask(lease(), etcd.LeaseService.leaseLeases, {});
    const listed = leases.map(({ ID }) => ID);
    assert.ok(granted.every((id) => listed.includes(id)));
    assert.equal(new Set(listed).size, listed.length);
  });

  it("A9: keep-alives are answered one for one and in order; one that is gone gets 0 and the stream lives", async () => {
    const { ID } = await grant(60);
    const stream = lease().leaseKeepAlive();
    const answers: etcd.LeaseKeepAliveResponse[] = [];
    const all = new Promise<void>((resolve) => stream.on("end", resolve));
    stream.on("data", (answer: etcd.LeaseKeepAliveResponse) => answers.push(answer));
    for (const id of [ID, "4711", "-1", ID, "0"]) stream.write({ ID: id });
    stream.end();
    await all;
    assert.deepEqual(
      answers.map((answer) => [answer.ID, answer.TTL]),
      [
        [ID, 60],
        ["4711", 0],
        ["-1", 0],
        [ID, 60],
        ["0", 0],
      ],
    );
  });

  it("without a leader a keep-alive stream ends so that its client looks elsewhere", async () => {
    const { ID } = await grant(60);
    const stream = lease().leaseKeepAlive();
    stream.on("error", () => undefined);
    stream.on("data", () => undefined);
    const ended = new Promise<{ code: number; details: string }>((resolve) => stream.on("status", resolve));
    bench.coordinator.failNext({ code: "no-leader", outcome: "not-applied", message: "none" });
    stream.write({ ID });
    const { code, details } = await ended;
    assert.deepEqual({ code, details }, { code: status.UNAVAILABLE, details: "etcdserver: no leader" });
  });

  it("bytes that are no request are refused, and the next one is served", async () => {
    for (const method of ["LeaseGrant", "LeaseRevoke", "LeaseTimeToLive"]) {
      const call = new Promise((resolve, reject) => {
        lease().makeUnaryRequest(
          `/etcdserverpb.Lease/${method}`,
          () => Buffer.from([0xff]),
          (answer: Buffer) => answer,
          {},
          (error, answer) => {
            if (error === null) resolve(answer);
            else reject(error);
          },
        );
      });
      const refused = await refusal(call);
      assert.equal(refused.code, status.INTERNAL, method);
      assert.match(refused.details, /^grpc: error unmarshalling request: /);
    }
    assert.equal((await grant(60)).TTL, 60);
  });

  it("never tells a living lease to be over", () => {
    assert.deepEqual([-1, 0, 1, 999, 1000, 1999, 2000].map(secondsOf), [-1, 0, 1, 1, 1, 1, 2]);
  });
});

describe("v3lockpb.Lock and v3electionpb.Election", () => {
  let bench: EtcdBench;
  before(async () => {
    bench = await openEtcdBench();
  });
  after(() => bench.close());
  const newLease = async (): Promise<string> =>
    (await ask(bench.clients.lease, etcd.LeaseService.leaseGrant, { TTL: 60, ID: "0" })).ID;

  it("a lock is handed on in the order of asking, and its key is the holder's", async () => {
    const { lock } = bench.clients;
    const leases = [await newLease(), await newLease(), await newLease()];
    const take = (i: number): Promise<string> =>
      ask(lock, etcdLock.LockService.lock, { name: bytes("l"), lease: leases[i] ?? "" }).then(({ key }) =>
        String(key),
      );
    const first = await take(0);
    assert.equal(first, `l/${BigInt(leases[0] ?? 0).toString(16)}`);
    // Who has it gets it again.
    assert.equal(await take(0), first);
    const order: number[] = [];
    const second = take(1).then(() => order.push(1));
    // The second stands in line before the third asks.
    const { kv } = bench.clients;
    while ((await ask(kv, etcd.KVService.range, range("l/", { rangeEnd: bytes("l0") }))).count < 2);
    const third = take(2).then(() => order.push(2));
    while ((await ask(kv, etcd.KVService.range, range("l/", { rangeEnd: bytes("l0") }))).count < 3);
    assert.deepEqual(order, []);
    await ask(lock, etcdLock.LockService.unlock, { key: bytes(first) });
    await second;
    assert.deepEqual(order, [1]);
    await ask(bench.clients.lease, etcd.LeaseService.leaseRevoke, { ID: leases[1] ?? "" });
    await third;
    assert.deepEqual(order, [1, 2]);
  });

  it("B18: whose lease ended while it waited gets no lock, and who gave up is not waited for", async () => {
    const { lock, kv, lease } = bench.clients;
    const [holder, ending, leaving, last] = [
      await newLease(),
      await newLease(),
      await newLease(),
      await newLease(),
    ];
    const { key } = await ask(lock, etcdLock.LockService.lock, { name: bytes("m"), lease: holder });
    const inLine = async (): Promise<number> =>
      (await ask(kv, etcd.KVService.range, range("m/", { rangeEnd: bytes("m0") }))).count;
    const doomed = refusal(ask(lock, etcdLock.LockService.lock, { name: bytes("m"), lease: ending }));
    while ((await inLine()) < 2);
    await ask(lease, etcd.LeaseService.leaseRevoke, { ID: ending });
    assert.deepEqual(await doomed, {
      code: status.NOT_FOUND,
      details: "etcdserver: requested lease not found",
    });
    const impatient = lock.lock({ name: bytes("m"), lease: leaving }, () => undefined);
    while ((await inLine()) < 2);
    impatient.cancel();
    while ((await inLine()) > 1);
    const next = ask(lock, etcdLock.LockService.lock, { name: bytes("m"), lease: last });
    await ask(lock, etcdLock.LockService.unlock, { key });
    await next;
    assert.equal(
      (await refusal(ask(lock, etcdLock.LockService.lock, { name: bytes("m"), lease: "4711" }))).code,
      status.NOT_FOUND,
    );
  });

  it("whose time is over while it waits is not waited for either", async () => {
    const { lock, kv } = bench.clients;
    const { key } = await ask(lock, etcdLock.LockService.lock, { name: bytes("t"), lease: await newLease() });
    const inLine = async (): Promise<number> =>
      (await ask(kv, etcd.KVService.range, range("t/", { rangeEnd: bytes("t0") }))).count;
    const request = { name: bytes("t"), lease: await newLease() };
    const late = new Promise<number | undefined>((resolve) => {
      lock.lock(request, new Metadata(), { deadline: Date.now() + 200 }, (error) => resolve(error?.code));
    });
    assert.equal(await late, status.DEADLINE_EXCEEDED);
    while ((await inLine()) > 1);
    await ask(lock, etcdLock.LockService.unlock, { key });
    assert.equal(await inLine(), 0);
  });

  it("an election has one leader, who proclaims and resigns; observers see each", async () => {
    const { election } = bench.clients;
    const name = bytes("e");
    const none = await refusal(ask(election, etcdElection.ElectionService.leader, { name }));
    assert.deepEqual(none, { code: status.UNKNOWN, details: "election: no leader" });
    const seen: string[] = [];
    const observer = election.observe({ name });
    observer.on("error", () => undefined);
    let look: () => void = () => undefined;
    observer.on("data", (answer: { kv?: { value: Buffer } }) => {
      seen.push(String(answer.kv?.value));
      look();
    });
    const saw = async (value: string): Promise<void> => {
      while (!seen.includes(value)) await new Promise<void>((resolve) => (look = resolve));
    };
    const first = await ask(election, etcdElection.ElectionService.campaign, {
      name,
      lease: await newLease(),
      value: bytes("one"),
    });
    await saw("one");
    const other = ask(election, etcdElection.ElectionService.campaign, {
      name,
      lease: await newLease(),
      value: bytes("two"),
    });
    await ask(election, etcdElection.ElectionService.proclaim, {
      leader: first.leader,
      value: bytes("one again"),
    });
    await saw("one again");
    assert.equal(
      String((await ask(election, etcdElection.ElectionService.leader, { name })).kv?.value),
      "one again",
    );
    await ask(election, etcdElection.ElectionService.resign, { leader: first.leader });
    const second = await other;
    await saw("two");
    assert.ok((second.leader?.rev ?? 0) > (first.leader?.rev ?? 0));
    assert.deepEqual(
      await refusal(
        ask(election, etcdElection.ElectionService.proclaim, { leader: first.leader, value: bytes("x") }),
      ),
      {
        code: status.UNKNOWN,
        details: "election: not leader",
      },
    );
    observer.cancel();
  });
});

describe("etcdserverpb.Cluster and Maintenance", () => {
  const members: ControlMember[] = [
    { id: 1, name: "a", peerAddress: "a:1", clientAddress: "a:2", isLearner: false },
    { id: 2, name: "b", peerAddress: "b:1", clientAddress: "b:2", isLearner: true },
  ];
  const asked: string[] = [];
  let spaceLow = false;
  const control: EtcdControl = {
    members: () => Promise.resolve(members),
    remove: (id) => {
      asked.push(`remove ${id}`);
      return id === 9
        ? Promise.reject(new ControlError("unknown-member", "there is none"))
        : Promise.resolve(members.slice(0, 1));
    },
    promote: (id) => Promise.reject(new ControlError(id === 1 ? "not-a-learner" : "learner-not-ready", "no")),
    transferLeadership: (id) => {
      asked.push(`lead ${id}`);
      return id === 9
        ? Promise.reject(new ControlError("unknown-member", "there is none"))
        : Promise.reject(new ControlError("not-leader", "ask the leader"));
    },
    status: () => ({
      isLearner: false,
      lastIndex: 12,
      appliedIndex: 11,
      databaseBytes: 1000,
      databaseBytesInUse: 900,
      quotaBytes: 5000,
      spaceLow,
      diverged: false,
    }),
    snapshot: async (write) => {
      for (const chunk of ["state ", "of ", "the cell"]) if (!(await write(bytes(chunk)))) return;
    },
    authorize: () => undefined,
  };
  let bench: EtcdBench;
  before(async () => {
    bench = await openEtcdBench({ control, doorLimits: { snapshotBlobBytes: 4 } });
  });
  after(() => bench.close());

  it("lists members with URLs, and changes them through the cell's own path", async () => {
    const { cluster } = bench.clients;
    const list = await ask(cluster, etcd.ClusterService.memberList, { linearizable: true });
    assert.deepEqual(list.members[1], {
      ID: 2,
      name: "b",
      peerURLs: ["http://b:1"],
      clientURLs: ["http://b:2"],
      isLearner: true,
    });
    assert.equal(list.header?.revision, 0);
    assert.equal((await ask(cluster, etcd.ClusterService.memberRemove, { ID: "2" })).members.length, 1);
    assert.deepEqual(asked.splice(0), ["remove 2"]);
    const text = async (call: Promise<unknown>): Promise<string> => (await refusal(call)).details;
    assert.equal(
      await text(ask(cluster, etcd.ClusterService.memberRemove, { ID: "9" })),
      "etcdserver: member not found",
    );
    assert.equal(
      await text(ask(cluster, etcd.ClusterService.memberRemove, { ID: "18446744073709551615" })),
      "etcdserver: member not found",
    );
    assert.equal(
      await text(ask(cluster, etcd.ClusterService.memberPromote, { ID: "1" })),
      "etcdserver: can only promote a learner member",
    );
    assert.equal(
      await text(ask(cluster, etcd.ClusterService.memberPromote, { ID: "2" })),
      "etcdserver: can only promote a learner member which is in sync with leader",
    );
    const add = await refusal(
      ask(cluster, etcd.ClusterService.memberAdd, { peerURLs: ["http://c:1"], isLearner: true }),
    );
    assert.equal(add.code, status.UNIMPLEMENTED);
    assert.match(add.details, /--join/);
  });

  it("who may not change the cell is told so", async () => {
    const guarded = await openEtcdBench({ control: { ...control, authorize: () => "client/app may not" } });
    const { cluster, maintenance } = guarded.clients;
    for (const call of [
      ask(cluster, etcd.ClusterService.memberRemove, { ID: "2" }),
      ask(cluster, etcd.ClusterService.memberPromote, { ID: "2" }),
      ask(maintenance, etcd.MaintenanceService.moveLeader, { targetID: "2" }),
    ]) {
      assert.deepEqual(await refusal(call), {
        code: status.PERMISSION_DENIED,
        details: "client/app may not",
      });
    }
    assert.equal(
      (await ask(cluster, etcd.ClusterService.memberList, { linearizable: false })).members.length,
      2,
    );
    await guarded.close();
  });

  it("a status says what clients gate their features on, and alarms are facts", async () => {
    const { maintenance } = bench.clients;
    const told = await ask(maintenance, etcd.MaintenanceService.status, {});
    assert.match(told.version, /^3\.6\./);
    assert.deepEqual(
      [told.dbSize, told.dbSizeInUse, told.dbSizeQuota, told.raftIndex, told.raftAppliedIndex, told.leader],
      [1000, 900, 5000, 12, 11, 1],
    );
    const get = { action: etcd.AlarmRequest_AlarmAction.GET, memberID: "0", alarm: etcd.AlarmType.NONE };
    assert.deepEqual((await ask(maintenance, etcd.MaintenanceService.alarm, get)).alarms, []);
    spaceLow = true;
    const { alarms } = await ask(maintenance, etcd.MaintenanceService.alarm, get);
    assert.deepEqual(alarms, [{ memberID: 1, alarm: etcd.AlarmType.NOSPACE }]);
    assert.deepEqual((await ask(maintenance, etcd.MaintenanceService.status, {})).errors, ["alarm:NOSPACE"]);
    spaceLow = false;
    const raise = { ...get, action: etcd.AlarmRequest_AlarmAction.ACTIVATE };
    assert.equal(
      (await refusal(ask(maintenance, etcd.MaintenanceService.alarm, raise))).code,
      status.UNIMPLEMENTED,
    );
    await ask(maintenance, etcd.MaintenanceService.defragment, {});
  });

  it("leadership goes only to a voter, and only from the leader", async () => {
    const { maintenance } = bench.clients;
    const text = async (targetID: string): Promise<string> =>
      (await refusal(ask(maintenance, etcd.MaintenanceService.moveLeader, { targetID }))).details;
    assert.equal(await text("9"), "etcdserver: bad leader transferee");
    assert.equal(await text("2"), "etcdserver: not leader");
  });

  it("hashes agree for one revision, and change with the state", async () => {
    const { maintenance, kv } = bench.clients;
    await ask(kv, etcd.KVService.put, put("hash/a", "1"));
    const first = await ask(maintenance, etcd.MaintenanceService.hashKv, { revision: 0 });
    await ask(kv, etcd.KVService.put, put("hash/a", "2"));
    const second = await ask(maintenance, etcd.MaintenanceService.hashKv, { revision: 0 });
    const again = await ask(maintenance, etcd.MaintenanceService.hashKv, { revision: first.hashRevision });
    assert.equal(again.hash, first.hash);
    assert.notEqual(second.hash, first.hash);
    assert.equal((await ask(maintenance, etcd.MaintenanceService.hash, {})).hash, second.hash);
  });

  it("A20: a snapshot ends with the SHA-256 of all before it, at a length that tools expect", async () => {
    const { createHash } = await import("node:crypto");
    const blobs: Buffer[] = [];
    const stream = bench.clients.maintenance.snapshot({});
    for await (const answer of stream) {
      const { blob } = answer as etcd.SnapshotResponse;
      blobs.push(blob);
    }
    const whole = Buffer.concat(blobs);
    assert.equal(whole.length % 512, 32);
    const body = whole.subarray(0, -32);
    assert.deepEqual(whole.subarray(-32), createHash("sha256").update(body).digest());
    assert.ok(body.toString().startsWith("state of the cell\0"));
  });
});

describe("etcdserverpb.Auth, health and reflection", () => {
  let bench: EtcdBench;
  before(async () => {
    bench = await openEtcdBench();
  });
  after(() => bench.close());

  it("authentication is not enabled, whatever is asked", async () => {
    const { auth } = bench.clients;
    assert.equal((await ask(auth, etcd.AuthService.authStatus, {})).enabled, false);
    for (const name of ["AuthEnable", "Authenticate", "UserAdd", "RoleGrantPermission"]) {
      const call = new Promise((resolve, reject) => {
        auth.makeUnaryRequest(
          `/etcdserverpb.Auth/${name}`,
          () => Buffer.alloc(0),
          (answer: Buffer) => answer,
          {},
          (error, answer) => {
            if (error === null) resolve(answer);
            else reject(error);
          },
        );
      });
      assert.deepEqual(await refusal(call), {
        code: status.FAILED_PRECONDITION,
        details: "etcdserver: authentication is not enabled",
      });
    }
  });

  it("health follows the leader, at once for who watches", async () => {
    const { SERVING, NOT_SERVING } = health.HealthCheckResponse_ServingStatus;
    const client = bench.clients.health;
    assert.equal(
      (await ask(client, health.HealthService.check, { service: "etcdserverpb.KV" })).status,
      SERVING,
    );
    assert.equal(
      (await refusal(ask(client, health.HealthService.check, { service: "nothing" }))).code,
      status.NOT_FOUND,
    );
    const stream = client.watch({ service: "" });
    stream.on("error", () => undefined);
    const told: number[] = [];
    let look: () => void = () => undefined;
    stream.on("data", (answer: health.HealthCheckResponse) => {
      told.push(answer.status);
      look();
    });
    const count = async (wanted: number): Promise<void> => {
      while (told.length < wanted) await new Promise<void>((resolve) => (look = resolve));
    };
    await count(1);
    const { leader } = bench.coordinator.info();
    bench.coordinator.setLeader(undefined);
    await count(2);
    bench.coordinator.setLeader(leader);
    await count(3);
    assert.deepEqual(told, [SERVING, NOT_SERVING, SERVING]);
    stream.cancel();
  });

  it("reflection names the services, and gives the files that define them", async () => {
    const stream = bench.clients.reflection.serverReflectionInfo();
    const next = (
      request: reflection.ServerReflectionRequest["messageRequest"],
    ): Promise<reflection.ServerReflectionResponse> => {
      const answer = new Promise<reflection.ServerReflectionResponse>((resolve) =>
        stream.once("data", resolve),
      );
      stream.write({ host: "h", messageRequest: request });
      return answer;
    };
    const list = (await next({ $case: "listServices", value: "" })).messageResponse;
    assert.ok(list?.$case === "listServicesResponse");
    assert.ok(list.value.service.some(({ name }) => name === "etcdserverpb.KV"));
    const file = (await next({ $case: "fileContainingSymbol", value: "etcdserverpb.KV.Range" }))
      .messageResponse;
    assert.ok(file?.$case === "fileDescriptorResponse");
    const names = file.value.fileDescriptorProto.map((one) => one.subarray(2, 2 + (one[1] ?? 0)).toString());
    assert.deepEqual(names, ["etcdserverpb/rpc.proto", "mvccpb/kv.proto"]);
    const none = (await next({ $case: "fileByFilename", value: "none.proto" })).messageResponse;
    assert.equal(none?.$case, "errorResponse");
    const ended = new Promise((resolve) => stream.on("end", resolve));
    stream.resume();
    stream.end();
    await ended;
  });
});
