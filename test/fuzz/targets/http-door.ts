/** The HTTP door as a whole, over a socket: parser of HTTP, router, routes and answers, with a cell in memory behind it. */
import { connect } from "node:net";
import { startHttpDoor } from "@lockstep/gateway";
import { MemoryCoordinator } from "@lockstep/gateway/testing";
import type { Target } from "../contract.ts";
import { damageRequest, request } from "../generate/http.ts";
import { input } from "../generate/mutate.ts";

const NOT_SENT = new Error("would wait for what never comes");
const REFUSED = new Error("refused by its status, or cut");

/** A watch, a long poll and a read of a later revision answer when something happens; here nothing does. */
const WAITS = /\/v1\/watch|minRevision/;

/** The text as HTTP, with a length that fits the body. */
function asHttp(bytes: Buffer): Buffer {
  const gap = bytes.indexOf("\n\n");
  const head = bytes.toString("latin1", 0, gap < 0 ? bytes.length : gap);
  const body = gap < 0 ? Buffer.alloc(0) : bytes.subarray(gap + 2);
  if (WAITS.test(head)) throw NOT_SENT;
  const [line = "", ...headers] = head.split("\n");
  const lines = [
    `${line} HTTP/1.1`,
    "host: fuzz",
    "connection: close",
    ...headers,
    `content-length: ${body.length}`,
  ];
  return Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), body]);
}

/** Sends the bytes and no more, and reads until the door has said all it will. */
function exchange(port: number, bytes: Buffer): Promise<Buffer> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const socket = connect({ host: "127.0.0.1", port });
    socket.on("data", (chunk) => chunks.push(chunk));
    // A door that cuts the connection is within its rights.
    socket.on("error", () => undefined);
    socket.on("close", () => resolve(Buffer.concat(chunks)));
    socket.end(bytes);
  });
}

async function send(bytes: Buffer): Promise<readonly number[]> {
  const text = asHttp(bytes);
  const door = await startHttpDoor({ coordinator: new MemoryCoordinator(), host: "127.0.0.1", port: 0 });
  try {
    const answer = (await exchange(door.address.port, text)).toString("latin1");
    const statuses = [...answer.matchAll(/^HTTP\/1\.1 (\d{3}) /gm)].map(([, status]) => Number(status));
    if (statuses.includes(500)) throw new TypeError(`the door broke: ${answer.slice(0, 600)}`);
    const sound = await exchange(door.address.port, asHttp(Buffer.from("GET /v1/info\n\n")));
    if (!sound.includes("HTTP/1.1 200 ")) throw new TypeError("the door does not serve the next one");
    if (!statuses.some((status) => status < 400)) throw REFUSED;
    return statuses;
  } finally {
    await door.close(0);
  }
}

export const HTTP_DOOR_TARGETS: readonly Target[] = [
  {
    name: "http-door",
    about:
      "requests to a whole HTTP door over a socket; refused with a status from 400 on that is not 500, or cut",
    // A door is opened and closed for each.
    weight: 0.02,
    bounds: { ms: 5_000, allocatedBytes: 64 * 1024 * 1024 },
    // Texts and numbers of a request are combined freely, so what is drawn need not be acceptable.
    generate: (dice) => ({ ...input(dice, request, { structured: damageRequest }), valid: false }),
    decode: send,
    refused: (error) => error === REFUSED || error === NOT_SENT,
  },
];
