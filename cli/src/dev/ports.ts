import { createServer } from "node:net";
import { CliError, EXIT } from "../exit-codes.ts";
import type { DevLayout } from "./layout.ts";

/** Refuses, naming the port, when something listens where a member should. */
export async function requireFreePorts(layout: DevLayout): Promise<void> {
  for (const member of layout.members) {
    for (const address of [member.client, member.http, member.peer, member.admin, member.ops]) {
      await requireFree(address, member.name);
    }
  }
}

function requireFree(address: string, name: string): Promise<void> {
  const colon = address.lastIndexOf(":");
  const host = address.slice(0, colon);
  const port = Number(address.slice(colon + 1));
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => {
      reject(
        new CliError(
          EXIT.failed,
          error.code === "EADDRINUSE"
            ? `port ${String(port)} (of ${name}) is in use`
            : `cannot listen on ${address} (of ${name}): ${error.message}`,
          "Is another `lockstep dev` running? Choose other ports with --base-port.",
        ),
      );
    });
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve()));
  });
}
