import { createServer } from "node:net";

/** Below the ephemeral range, so that no outgoing connection of somebody else takes one meanwhile. */
const FIRST = 20_000;
const LAST = 31_000;
let next = FIRST + ((process.pid * 97) % (LAST - FIRST));

/** A block of `count` consecutive free ports on loopback. */
export async function freePortBlock(count: number): Promise<number> {
  for (let attempt = 0; attempt < 500; attempt += 1) {
    if (next + count > LAST) next = FIRST;
    const base = next;
    next += count;
    const ports = Array.from({ length: count }, (_, offset) => base + offset);
    if ((await Promise.all(ports.map(isFree))).every(Boolean)) return base;
  }
  throw new Error("no free ports");
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", () => resolve(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
  });
}
