import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { MemberRecord } from "../machine/membership.ts";
import type { MemberId } from "../raft/types.ts";
import type { PeerCertificateNames } from "../transport/types.ts";
import { createDoorkeeper } from "./peer-admission.ts";
import type { DoorkeeperParts } from "./peer-admission.ts";

const CELL_ID = "cell-id";
const UID = "uid-1";

function record(id: number, name: string): MemberRecord {
  const at = (port: number): string => `${name}.example:${String(port)}`;
  return {
    id: id as MemberId,
    name,
    incarnation: `life-${String(id)}`,
    addresses: { client: at(1), http: at(2), peer: at(3), admin: at(4), ops: at(5) },
  };
}

function names(uri: string): PeerCertificateNames {
  return { commonName: "", alternativeNames: `DNS:whatever.example, URI:${uri}` };
}

function member(name: string): PeerCertificateNames {
  return names(`lockstep://${UID}/member/${name}`);
}

interface Desk {
  readonly doorkeeper: ReturnType<typeof createDoorkeeper>;
  readonly knocks: number[];
  readonly warnings: string[];
  nowMs: number;
}

/** Member 1 of a cell of m1, m2 and m3; m4 was told of and is not applied yet; 9 was removed. */
function desk(cellUid: string | undefined): Desk {
  const knocks: number[] = [];
  const warnings: string[] = [];
  const told = [record(4, "m4")];
  const result = { nowMs: 0 };
  const parts = {
    identity: { cellId: CELL_ID, memberId: 1 as MemberId },
    cellUid,
    replica: {
      newcomers: {
        records: () => told,
        find: (id: MemberId) => told.find((one) => one.id === id),
        knocked: (peer: { memberId: MemberId }) => knocks.push(peer.memberId),
      },
      parts: {
        state: {
          membership: { members: [record(1, "m1"), record(2, "m2"), record(3, "m3")], removedIds: [9] },
        },
        environment: {
          clock: { monotonicMs: () => result.nowMs },
          log: { warn: (_: string, fields: { reason: string }) => warnings.push(fields.reason) },
        },
      },
    },
  } as unknown as DoorkeeperParts;
  return Object.assign(result, { doorkeeper: createDoorkeeper(parts), knocks, warnings });
}

function ask(at: Desk, id: number, certificate?: PeerCertificateNames, over: object = {}): string {
  const verdict = at.doorkeeper.admit({
    cellId: CELL_ID,
    memberId: id as MemberId,
    incarnation: `life-${String(id)}`,
    toMemberId: 1 as MemberId,
    address: "somewhere:1",
    ...(certificate === undefined ? {} : { certificate }),
    ...over,
  });
  return verdict.ok ? "in" : verdict.reason;
}

describe("who is let in, with TLS", () => {
  it("certificate and configuration must both say so", () => {
    const at = desk(UID);
    const rows: readonly (readonly [number, PeerCertificateNames | undefined, object, string])[] = [
      [2, member("m2"), {}, "in"],
      [4, member("m4"), {}, "in"],
      [2, undefined, {}, "wrong-certificate"],
      [2, member("m3"), {}, "wrong-certificate"],
      [2, names(`lockstep://${UID}/admin/m2`), {}, "wrong-certificate"],
      [2, names(`lockstep://${UID}/client/m2`), {}, "wrong-certificate"],
      [2, names("lockstep://uid-2/member/m2"), {}, "wrong-certificate"],
      [2, names("https://m2.example"), {}, "wrong-certificate"],
      [2, member("m2"), { incarnation: "another" }, "wrong-incarnation"],
      [2, member("m2"), { cellId: "other" }, "wrong-cell"],
      [2, member("m2"), { toMemberId: 3 }, "wrong-member"],
      [9, member("m9"), {}, "removed"],
      [7, member("m7"), {}, "unknown-member"],
    ];
    for (const [id, certificate, over, expected] of rows) {
      assert.equal(ask(at, id, certificate, over), expected, JSON.stringify([id, certificate, over]));
    }
  });

  it("only a member of this cell is heard when it knocks", () => {
    const at = desk(UID);
    assert.equal(ask(at, 7, names(`lockstep://${UID}/client/m7`)), "wrong-certificate");
    assert.deepEqual(at.knocks, []);
    assert.equal(ask(at, 7, member("m7")), "unknown-member");
    assert.deepEqual(at.knocks, [7]);
  });

  it("it is told why, and not again and again", () => {
    const at = desk(UID);
    for (let n = 0; n < 100; n += 1) ask(at, 2, names("lockstep://uid-2/member/m2"));
    assert.deepEqual(at.warnings, ["it belongs to cell uid-2, and this is cell uid-1"]);
    at.nowMs = 60_000;
    ask(at, 2, member("m3"));
    assert.equal(at.warnings[1], "it is for member/m3, and member m2 is claimed");
  });

  it("without TLS the configuration alone decides", () => {
    const at = desk(undefined);
    assert.equal(ask(at, 2), "in");
    assert.equal(at.doorkeeper.recognise, undefined);
  });
});

describe("who is recognised, having been dialled", () => {
  const recognise = (address: string, certificate: PeerCertificateNames): string | undefined =>
    desk(UID).doorkeeper.recognise?.(address, certificate);

  it("is the member that the configuration has at that address", () => {
    assert.equal(recognise("m2.example:3", member("m2")), undefined);
    assert.equal(recognise("m4.example:3", member("m4")), undefined);
    assert.match(recognise("m2.example:3", member("m3")) ?? "", /for member\/m3, and m2 was dialled/);
    assert.match(recognise("m2.example:3", names(`lockstep://${UID}/admin/m2`)) ?? "", /not for a member/);
    assert.match(recognise("m2.example:3", names("lockstep://uid-2/member/m2")) ?? "", /belongs to cell/);
  });

  it("is any member of this cell where the configuration knows nobody", () => {
    assert.equal(recognise("elsewhere:3", member("m7")), undefined);
    assert.match(recognise("elsewhere:3", names(`lockstep://${UID}/client/m7`)) ?? "", /not for a member/);
  });
});
