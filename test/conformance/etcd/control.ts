// Through this a program that is no child of ours ends members and starts them again: POST /kill?member=0.
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Target } from "./target.ts";

export interface Control {
  /** Base URL, on loopback. */
  readonly url: string;
  close(): void;
}

function act(target: Target, request: IncomingMessage): Promise<void> {
  const url = new URL(request.url ?? "/", "http://localhost");
  const member = Number(url.searchParams.get("member"));
  switch (url.pathname) {
    case "/kill":
      return target.kill(member);
    case "/stop":
      return target.terminate(member);
    case "/start":
      return target.start(member);
    default:
      throw new TypeError(`nothing is called ${url.pathname}`);
  }
}

/** Serves `kill`, `stop` (in order) and `start` for the members of a target; each answers when it is done. */
export async function startControl(target: Target): Promise<Control> {
  const server: Server = createServer((request, response) => {
    Promise.resolve()
      .then(() => act(target, request))
      .then(
        () => response.end("done\n"),
        (error: unknown) => response.writeHead(500).end(String(error)),
      );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${String(port)}`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
