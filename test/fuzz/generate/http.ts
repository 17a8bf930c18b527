/**
 * HTTP requests as text: the request line without its version, header lines, an empty line, the body. Line ends are
 * bare line feeds; whoever sends them on a socket makes them HTTP's.
 */
import type { Dice } from "./dice.ts";
import { damageJson } from "./json.ts";
import { damage } from "./mutate.ts";
import * as values from "./values.ts";

/** Headers that some route reads. The first text of each is one that any request may carry. */
const HEADERS: readonly (readonly [string, string, ...string[]])[] = [
  ["if-version", "0", "7", "9007199254740992", "-1"],
  ["if-revision", "0", "12"],
  ["if-lease", "lease_81", "81", "lease_0"],
  ["if-match", "*", '"918420"', 'W/"1"', '"1", "2"'],
  ["if-none-match", "*", '"5"'],
  ["lease-id", "lease_81", "lease_9223372036854775807", "lease_9223372036854775808"],
  ["lockstep-epoch", "0", "3", "x"],
  ["lockstep-namespace", "default", "team.orders", "-"],
  ["request-id", "a-token", "", "x".repeat(200)],
  ["accept", "application/json", "text/event-stream", "application/x-ndjson"],
  ["last-event-id", "41", ""],
];

function headers(dice: Dice): string {
  if (dice.once(2)) return "";
  return dice
    .list(2, () => {
      const [name, plain, ...others] = dice.pick(HEADERS);
      return `${name}: ${dice.once(2) ? plain : dice.pick([plain, ...others])}\n`;
    })
    .join("");
}

/** A key as a path holds it, percent-encoded where it must be and now and then where it need not. */
function path(dice: Dice): string {
  let encoded = "/";
  for (const byte of values.bytes(dice, 40)) {
    const plain = /[A-Za-z0-9._~/-]/.test(String.fromCharCode(byte)) && !dice.once(8);
    encoded += plain ? String.fromCharCode(byte) : `%${byte.toString(16).padStart(2, "0")}`;
  }
  return encoded;
}

/** What each route takes; now and then it is given what belongs to another one. */
const QUERIES = {
  put: ["sequential", "timeoutMs=500"],
  get: ["revision=7", "minRevision=3", "consistency=serializable", "keysOnly", "timeoutMs=1"],
  list: ["prefix", "prefix=true", "limit=10", "after=7.YWI", "keysOnly", "countOnly=1"],
  delete: ["prefix", "prefix=false", "timeoutMs=9"],
  lease: ["keys", "keys=0", "timeoutMs=9"],
  leases: ["after=lease_5", "limit=3", "limit=0"],
  watch: [
    "key=%00%ff",
    "prefix=/a",
    "fromRevision=12",
    "previous",
    "omit=put",
    "wait=30s",
    "wait=999999999m",
  ],
} satisfies Readonly<Record<string, readonly string[]>>;

function query(dice: Dice, route: keyof typeof QUERIES): string {
  const known: readonly string[] = dice.once(8) ? Object.values(QUERIES).flat() : QUERIES[route];
  const parts = dice.once(2) ? [] : dice.list(3, () => dice.pick(known));
  return parts.length === 0 ? "" : `?${parts.join("&")}`;
}

function keyJson(dice: Dice, name: string): object {
  const bytes = values.key(dice);
  return dice.once(2)
    ? { [name]: values.text(dice) || "k" }
    : { [`${name}Base64`]: bytes.toString("base64") };
}

function stepJson(dice: Dice): object {
  switch (dice.below(3)) {
    case 0:
      return {
        put: {
          ...keyJson(dice, "key"),
          ...keyJson(dice, "value"),
          ...(dice.once(3) && { lease: "lease_81" }),
        },
      };
    case 1:
      return {
        delete: { ...keyJson(dice, "key"), ...(dice.once(2) && { prefix: true }), previous: dice.once(2) },
      };
    default:
      return {
        get: { ...keyJson(dice, "key"), revision: 1 + dice.below(9), limit: dice.below(5), reverse: true },
      };
  }
}

function compareJson(dice: Dice): object {
  const operand = dice.pick([
    { version: 3 },
    { createRevision: 0 },
    { modRevision: 77 },
    { lease: null },
    { lease: "lease_5" },
    { value: "x" },
  ]);
  return { ...keyJson(dice, "key"), ...operand, operator: dice.pick(["=", "==", "!=", "<", ">"]) };
}

function txnJson(dice: Dice): object {
  return {
    compares: dice.list(4, () => compareJson(dice)),
    success: dice.list(4, () => stepJson(dice)),
    failure: dice.list(2, () => stepJson(dice)),
  };
}

export function request(dice: Dice): Buffer {
  const wrap = (line: string, body: Buffer | string = ""): Buffer =>
    Buffer.concat([Buffer.from(`${line}\n${headers(dice)}\n`, "latin1"), Buffer.from(body)]);
  switch (dice.below(10)) {
    case 0:
      return wrap(`PUT /v1/kv${path(dice)}${query(dice, "put")}`, values.bytes(dice));
    case 1:
      return wrap(`GET /v1/kv${path(dice)}${query(dice, dice.pick(["get", "list"]))}`);
    case 2:
      return wrap(`DELETE /v1/kv${path(dice)}${query(dice, "delete")}`);
    case 3: {
      const owner = values.text(dice);
      return wrap("POST /v1/leases", JSON.stringify({ ttlMs: 2_000 + dice.below(100_000), owner }));
    }
    case 4:
      return wrap(`GET /v1/leases${query(dice, "leases")}`);
    case 5:
      return wrap(
        `${dice.pick(["GET", "DELETE"])} /v1/leases/lease_${values.lease(dice)}${query(dice, "lease")}`,
      );
    case 6:
      return wrap(`POST /v1/leases/lease_${values.lease(dice)}/keepalive`);
    case 7:
      return wrap(`GET /v1/watch${query(dice, "watch")}`);
    default:
      return wrap("POST /v1/txn", JSON.stringify(txnJson(dice)));
  }
}

/** Damages the JSON of a body, or the line and headers before it. */
export function damageRequest(dice: Dice, bytes: Buffer): Buffer {
  const gap = bytes.indexOf("\n\n");
  if (gap < 0) return bytes;
  const head = bytes.subarray(0, gap);
  const body = bytes.subarray(gap + 2);
  if (body[0] !== 0x7b || dice.once(4)) {
    return Buffer.concat([damage(dice, head, () => Buffer.from(headers(dice))), bytes.subarray(gap)]);
  }
  return Buffer.concat([bytes.subarray(0, gap + 2), damageJson(dice, body)]);
}
