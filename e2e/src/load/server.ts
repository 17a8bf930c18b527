import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Load } from "./load.ts";

/** Letters, digits and what makes a sentence of a test's name; it is printed and stored. */
const MARK = /^[\w .:,+-]{1,100}$/;

/**
 * `GET /report`, `POST /mark?name=NAME`, `GET /verify` (answers when it is done), `GET /healthz` (the process lives),
 * `GET /readyz` (a write was acknowledged). `load` is undefined until the cell was reached for the first time.
 */
export function createLoadServer(load: () => Load | undefined): Server {
  return createServer((request, response) => {
    answer(request, load()).then(
      ({ status, body }) => send(response, status, body),
      (error: unknown) =>
        send(response, 500, { error: error instanceof Error ? error.message : String(error) }),
    );
  });
}

interface Answer {
  readonly status: number;
  readonly body: unknown;
}

async function answer(request: IncomingMessage, load: Load | undefined): Promise<Answer> {
  const url = new URL(request.url ?? "/", "http://load");
  const route = `${request.method ?? "GET"} ${url.pathname}`;
  if (route === "GET /healthz") return { status: 200, body: { alive: true } };
  if (load === undefined) return { status: 503, body: { error: "the cell was not reached yet" } };
  switch (route) {
    case "GET /readyz":
      return { status: load.isReady ? 200 : 503, body: { ready: load.isReady } };
    case "GET /report":
      return { status: 200, body: load.report() };
    case "GET /verify": {
      const verification = await load.verify();
      return { status: 200, body: { verification, report: load.report() } };
    }
    case "POST /mark": {
      const name = url.searchParams.get("name") ?? "";
      if (!MARK.test(name))
        return { status: 400, body: { error: "name: up to 100 letters, digits or ' .:,+-'" } };
      load.mark(name);
      return { status: 200, body: { marked: name } };
    }
    default:
      return { status: 404, body: { error: `no ${route} here` } };
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(`${JSON.stringify(body)}\n`);
}
