import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { ADMISSION_DEFAULTS } from "../admission/admission.ts";
import type { LogIndex, MemberId, Term } from "../raft/types.ts";
import type { Environment } from "../replica/environment.ts";
import { Snapshots } from "../replica/snapshots.ts";
import { Cluster } from "../replica/testing/cluster.ts";
import { createSnapshotSink } from "../store/index.ts";
import type { SnapshotSource, Transport } from "../transport/types.ts";
import { openMemberFolder } from "./folder.ts";
import type { OpenedFolder } from "./folder.ts";
import { IdentityError } from "./identity.ts";
import { MEMBER_DEFAULTS } from "./options.ts";
import type { MemberOptions } from "./options.ts";
import { createNodePlatform } from "./platform.ts";

const ADDRESSES = {
  client: "127.0.0.1:1",
  http: "127.0.0.1:2",
  peer: "127.0.0.1:3",
  admin: "127.0.0.1:4",
  ops: "127.0.0.1:5",
};

describe("a member's folder at the start", () => {
  let directory = "";
  let environment: Environment;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "lockstep-folder-"));
    environment = new Cluster().environment((error) => assert.fail(error));
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  function open(): Promise<OpenedFolder> {
    const options: MemberOptions = {
      ...MEMBER_DEFAULTS,
      ...{ directory, name: "m1", origin: { kind: "bootstrap" }, listen: ADDRESSES, advertise: ADDRESSES },
      ...{ version: "0", admission: ADMISSION_DEFAULTS },
    };
    return openMemberFolder({
      ...{ options, environment, platform: createNodePlatform() },
      onSync: () => undefined,
    });
  }

  async function close({ wal, generations }: OpenedFolder): Promise<void> {
    await wal.close();
    await generations.close();
  }

  /** A leader's state at index 9, of term 2, made live as an installation does; the log is not told. */
  async function install({ generations }: OpenedFolder, told: "with its note" | "without"): Promise<void> {
    const donor = new Cluster();
    const { raft, state } = donor.elect(1);
    while (state.appliedIndex < 9) {
      donor.member(1).put("k", "v");
      donor.settle();
    }
    const sent: SnapshotSource[] = [];
    const transport: Pick<Transport, "sendSnapshot"> = {
      sendSnapshot: (_to, source) => new Promise(() => sent.push(source)),
    };
    const self = 1 as MemberId;
    const parts = {
      self,
      raft,
      state,
      generations,
      announce: (): void => undefined,
      pump: (): void => undefined,
    };
    const snapshots = new Snapshots({
      ...parts,
      environment: donor.prompt((error) => assert.fail(error)),
    });
    snapshots.connect(transport as Transport);
    snapshots.send(2 as MemberId);
    const source = sent[0];
    assert.ok(source !== undefined);
    const pending = await generations.begin();
    const sink = createSnapshotSink(pending.store, { pause: () => Promise.resolve() });
    for (let number = 0; ; number += 1) {
      const chunk = await source.chunk(number);
      if (chunk === undefined) break;
      await sink.chunk(chunk);
    }
    sink.finish();
    await pending.commit(told === "with its note" ? source.header : undefined);
  }

  it("R45: a founder starts behind a made-up snapshot at 1, and finds itself there again", async () => {
    const first = await open();
    assert.deepEqual(first.initial.logStart, { index: 1, term: 1 });
    assert.deepEqual(first.initial.configuration.voters, [1]);
    await close(first);
    const again = await open();
    assert.deepEqual(again.identity, first.identity);
    assert.deepEqual(again.initial, first.initial);
    await close(again);
  });

  it("R2, R55: entries beyond the store are there to be applied, and the commit index may lag", async () => {
    const first = await open();
    const entry = { index: 2 as LogIndex, term: 1 as Term, kind: "normal", data: new Uint8Array(0) } as const;
    await new Promise<void>((resolve) => first.wal.append({ entries: [entry] }, resolve));
    await close(first);
    const again = await open();
    assert.deepEqual([again.initial.applied, again.initial.hardState?.commit], [1, 1]);
    assert.deepEqual(
      again.initial.entries.map(({ index }) => index),
      [2],
    );
    await close(again);
  });

  it("W14: a crash between a state's installation and its marker in the log is finished, the vote kept", async () => {
    const first = await open();
    const hardState = { term: 7 as Term, vote: 3 as MemberId, commit: 1 as LogIndex };
    await new Promise<void>((resolve) => first.wal.append({ hardState, entries: [] }, resolve));
    await install(first, "with its note");
    await close(first);
    for (const start of ["the first", "the second"]) {
      const again = await open();
      const { initial } = again;
      assert.equal(initial.applied, 9, start);
      assert.deepEqual(initial.logStart, { index: 9, term: 2 }, start);
      assert.deepEqual(initial.hardState, { term: 7, vote: 3, commit: 9 }, start);
      assert.deepEqual(initial.configuration.voters, [1, 2, 3], start);
      assert.deepEqual(initial.entries, [], start);
      await close(again);
    }
  });

  it("W12: a store ahead of its log without such a note has lost acknowledged entries, and is not opened", async () => {
    const first = await open();
    await install(first, "without");
    await close(first);
    await assert.rejects(open(), IdentityError);
  });
});
