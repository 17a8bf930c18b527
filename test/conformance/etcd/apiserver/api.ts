// A client of kube-apiserver that does what these tests need: many requests at once, and watches that count events.
import { Agent, request as httpsRequest, type RequestOptions } from "node:https";
import type { ClientRequest, IncomingMessage } from "node:http";
import { createInterface } from "node:readline";

const REQUEST_MS_MAX = 20_000;
const SOCKETS_MAX = 32;

/** The metadata that the tests look at. */
export interface ApiObject {
  readonly metadata: { readonly name: string; readonly resourceVersion: string };
  readonly data?: Readonly<Record<string, string>>;
  readonly spec?: Readonly<Record<string, unknown>>;
}

export interface ApiList {
  readonly metadata: { readonly resourceVersion: string; readonly continue?: string };
  readonly items: readonly ApiObject[];
}

/** An answer, whatever its status. */
export interface Answer {
  readonly status: number;
  readonly text: string;
}

export interface WatchEvent {
  readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  readonly object: ApiObject;
}

export interface ApiAddress {
  readonly port: number;
  readonly token: string;
  /** The apiserver's own certificates, PEM. */
  readonly ca: string;
}

/** An answer that is not 2xx where only that will do. */
export class ApiFailure extends Error {
  override readonly name = "ApiFailure";
}

export class ApiClient {
  readonly #agent: Agent;
  readonly #watchAgent: Agent;
  readonly #address: ApiAddress;

  constructor(address: ApiAddress) {
    this.#address = address;
    this.#agent = new Agent({ ca: address.ca, keepAlive: true, maxSockets: SOCKETS_MAX });
    this.#watchAgent = new Agent({ ca: address.ca });
  }

  #options(method: string, path: string, type: string | undefined): RequestOptions {
    const headers = { authorization: `Bearer ${this.#address.token}`, ...(type && { "content-type": type }) };
    return { host: "127.0.0.1", port: this.#address.port, method, path, headers, agent: this.#agent };
  }

  /** Rejects when no answer came: the outcome of a write is unknown then. */
  send(method: string, path: string, body?: unknown, type = "application/json"): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const options = this.#options(method, path, body === undefined ? undefined : type);
      const request: ClientRequest = httpsRequest({ ...options, timeout: REQUEST_MS_MAX }, (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.once("error", reject);
        response.once("end", () =>
          resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString("utf8") }),
        );
      });
      request.once("timeout", () => request.destroy(new Error(`${method} ${path}: no answer in time`)));
      request.once("error", reject);
      request.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  /** Throws {@link ApiFailure} for anything but success. */
  async get<T>(path: string): Promise<T> {
    const { status, text } = await this.send("GET", path);
    if (status !== 200) throw new ApiFailure(`GET ${path}: ${String(status)} ${text}`);
    return JSON.parse(text) as T;
  }

  async text(path: string): Promise<string> {
    const { status, text } = await this.send("GET", path);
    if (status !== 200) throw new ApiFailure(`GET ${path}: ${String(status)} ${text}`);
    return text;
  }

  /** Opens one watch request; `onEvent` gets each line. Resolves when it has ended. `stop` ends it. */
  watch(path: string, onEvent: (event: WatchEvent) => void): { readonly ended: Promise<void>; stop(): void } {
    const options = { ...this.#options("GET", path, undefined), agent: this.#watchAgent };
    const request = httpsRequest(options);
    const ended = new Promise<void>((resolve) => {
      request.once("error", () => resolve());
      request.once("close", () => resolve());
      request.once("response", (response: IncomingMessage) => {
        response.on("error", () => resolve());
        const lines = createInterface({ input: response });
        lines.on("line", (line) => onEvent(JSON.parse(line) as WatchEvent));
        // It hands on what befell its input.
        lines.on("error", () => resolve());
        lines.once("close", () => resolve());
      });
    });
    request.end();
    return { ended, stop: () => void request.destroy() };
  }

  close(): void {
    this.#agent.destroy();
    this.#watchAgent.destroy();
  }
}
