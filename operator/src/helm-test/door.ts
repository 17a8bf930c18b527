import { request } from "node:https";
import type { RequestOptions } from "node:https";

/** PEM. */
export interface ClientCertificate {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

export interface DoorRequest {
  readonly method: "DELETE" | "POST" | "PUT";
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
}

export interface Answer {
  readonly status: number;
  readonly text: string;
}

export interface Door {
  /** Rejects when there is no whole answer. */
  ask(request: DoorRequest): Promise<Answer>;
}

const TIMEOUT_MS = 5_000;
const ANSWER_BYTES_MAX = 1024 * 1024;

/** The HTTP door of a cell, with TLS 1.3 in both directions. A connection for each request: they are few. */
export function httpsDoor(host: string, port: number, certificate: ClientCertificate): Door {
  return {
    ask: ({ method, path, headers = {}, json }) => {
      const body = json === undefined ? "" : JSON.stringify(json);
      return send(body, {
        host,
        port,
        method,
        path,
        ...certificate,
        minVersion: "TLSv1.3",
        agent: false,
        signal: AbortSignal.timeout(TIMEOUT_MS),
        headers: {
          ...headers,
          "content-length": Buffer.byteLength(body),
          ...(json === undefined ? {} : { "content-type": "application/json" }),
        },
      });
    },
  };
}

function send(body: string, options: RequestOptions): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request(options, (response) => {
      const parts: Buffer[] = [];
      let bytes = 0;
      response.on("data", (part: Buffer) => {
        bytes += part.length;
        if (bytes > ANSWER_BYTES_MAX) response.destroy(new Error("the answer is too long"));
        else parts.push(part);
      });
      response.on("error", reject);
      response.on("end", () =>
        resolve({ status: response.statusCode ?? 0, text: Buffer.concat(parts).toString("utf8") }),
      );
    });
    sent.on("error", reject);
    sent.end(body);
  });
}
