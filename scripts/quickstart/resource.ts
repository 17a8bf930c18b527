import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

/** What a guarded resource does: remember the largest fencing token it has seen, refuse smaller ones. */
export interface GuardedResource {
  readonly url: string;
  readonly text: () => string;
  readonly rejections: () => number;
  close(): void;
}

/** A tiny HTTP resource: `PUT` with a `Fencing-Token`; 409 for a token smaller than the largest one seen. */
export async function startGuardedResource(): Promise<GuardedResource> {
  let largestToken = "";
  let text = "";
  let rejections = 0;
  const server = createServer((request, response) => {
    const token = String(request.headers["fencing-token"] ?? "");
    let body = "";
    request.setEncoding("utf8");
    request.on("data", (chunk: string) => (body += chunk));
    request.on("end", () => {
      // The tokens have a fixed width, so they compare as text.
      if (!/^\d{16}$/.test(token) || token < largestToken) {
        rejections += 1;
        response.writeHead(409).end(`stale token ${token}, have seen ${largestToken}`);
        return;
      }
      largestToken = token;
      text = body;
      response.writeHead(200).end("stored");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${String(port)}/report-42`,
    text: () => text,
    rejections: () => rejections,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
