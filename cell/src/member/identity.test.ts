import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import type { MemberId } from "../raft/types.ts";
import { createNodeDisk } from "../wal/index.ts";
import { IdentityError, openFolder, writeIdentity } from "./identity.ts";

const TOOLS = { disk: createNodeDisk(), uuid: randomUUID };

describe("a member's folder", () => {
  let root = "";
  let directory = "";

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "lockstep-identity-"));
    directory = join(root, "data", "m1");
  });
  afterEach(() => rm(root, { recursive: true, force: true }));

  /** As a start does it: incarnation, log and store, identity. */
  async function found(): Promise<string> {
    const folder = await openFolder(TOOLS, directory, "m1");
    for (const part of ["wal", "store"]) await mkdir(join(directory, part));
    await writeIdentity(TOOLS.disk, directory, { cellId: "c", memberId: 1 as MemberId, ...folder.identity });
    return folder.identity.incarnation;
  }

  it("keeps its incarnation over failed joins and restarts", async () => {
    const first = await openFolder(TOOLS, directory, "m1");
    assert.equal(first.kind, "unjoined");
    await mkdir(join(directory, "wal"));
    const again = await openFolder(TOOLS, directory, "m1");
    assert.deepEqual(again, first, "an interrupted start took part in nothing");
    await mkdir(join(directory, "store"));
    await writeIdentity(TOOLS.disk, directory, { cellId: "c", memberId: 7 as MemberId, ...first.identity });
    const member = await openFolder(TOOLS, directory, "m1");
    assert.equal(member.kind, "member");
    assert.equal(member.identity.incarnation, first.identity.incarnation);
    assert.deepEqual((await readdir(directory)).sort(), ["identity.json", "store", "wal"]);
  });

  it("W17: without its log or its store it is not opened", async () => {
    for (const part of ["wal", "store"]) {
      await found();
      await rm(join(directory, part), { recursive: true });
      await assert.rejects(openFolder(TOOLS, directory, "m1"), IdentityError);
      await rm(directory, { recursive: true });
    }
  });

  it("W17, R45: log and store without the identity are never taken for a fresh folder", async () => {
    await found();
    await rm(join(directory, "identity.json"));
    await assert.rejects(openFolder(TOOLS, directory, "m1"), IdentityError);
    assert.deepEqual((await readdir(directory)).sort(), ["store", "wal"]);
  });

  it("belongs to one name", async () => {
    await found();
    await assert.rejects(openFolder(TOOLS, directory, "m2"), IdentityError);
  });

  it("what is damaged is refused, not replaced", async () => {
    await found();
    await writeFile(join(directory, "identity.json"), "{");
    await assert.rejects(openFolder(TOOLS, directory, "m1"), IdentityError);
  });
});
