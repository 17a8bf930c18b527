import { createServer as createHttpServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { FakeApiServer } from "./fake-apiserver.ts";

export interface FakeHttpOptions {
  readonly server: FakeApiServer;
  /** PEM; with it the server speaks TLS. `ca`: clients need a certificate from it. */
  readonly tls?: { readonly cert: string; readonly key: string; readonly ca?: string };
  /** Looks at each request; a status ends it. */
  readonly authenticate?: (request: IncomingMessage) => number | undefined;
}

export interface FakeHttp {
  readonly url: string;
  /** TCP connections that were ever made. */
  readonly connections: () => number;
  close(): Promise<void>;
}

/** A {@link FakeApiServer} on a port of the loopback. */
export async function serveFake(options: FakeHttpOptions): Promise<FakeHttp> {
  const { tls } = options;
  const client = tls?.ca === undefined ? {} : { requestCert: true, rejectUnauthorized: true };
  const http = tls === undefined ? createHttpServer() : createHttpsServer({ ...tls, ...client });
  const sockets = new Set<Socket>();
  let connections = 0;
  http.on("connection", (socket: Socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  http.on("request", (request: IncomingMessage, response: ServerResponse) => {
    const refused = options.authenticate?.(request);
    if (refused === undefined) accept(options.server, request, response);
    else response.writeHead(refused).end();
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const { port } = http.address() as AddressInfo;
  return {
    url: `${tls === undefined ? "http" : "https"}://localhost:${port}`,
    connections: () => connections,
    close: () =>
      new Promise((resolve) => {
        http.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

function accept(server: FakeApiServer, request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const leave = server.handle(
      {
        method: request.method ?? "",
        path: request.url ?? "",
        contentType: request.headers["content-type"],
        body: chunks.length === 0 ? undefined : Buffer.concat(chunks).toString(),
      },
      {
        head: (status, headers = {}) => {
          response.writeHead(status, headers);
          response.flushHeaders();
        },
        write: (text) => response.write(text),
        end: () => response.end(),
        reset: () => request.socket.destroy(),
      },
    );
    response.on("close", leave);
  });
}
