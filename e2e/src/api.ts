// A small client of the apiserver for the harness's own loops: one process a request (kubectl) would cost too much.
import { Agent, request as httpsRequest } from "node:https";
import type { IncomingMessage } from "node:http";
import { E2eError } from "./error.ts";
import { APISERVER_URL } from "./layout.ts";

/** An answer of the apiserver that is not 2xx. */
export class ApiError extends E2eError {
  readonly status: number;

  constructor(status: number, message: string) {
    super("command", message);
    this.name = "ApiError";
    this.status = status;
  }
}

/** PEM texts. */
export interface ApiCredentials {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** The kinds of patch that the harness uses. */
export type PatchType = "merge" | "strategic";

const REQUEST_TIMEOUT_MS = 10_000;
/** Sockets kept open, and at most used at once. */
const SOCKETS_MAX = 4;

/** Speaks JSON with the apiserver as the administrator. */
export class Api {
  readonly #agent: Agent;

  constructor(credentials: ApiCredentials) {
    this.#agent = new Agent({ ...credentials, keepAlive: true, maxSockets: SOCKETS_MAX });
  }

  /** The parsed answer. Throws ApiError when the apiserver refuses, E2eError when it cannot be reached. */
  async get<T>(path: string): Promise<T> {
    return JSON.parse(await this.#send("GET", path)) as T;
  }

  /** The answer as text: for `/readyz` and `/metrics`. */
  async text(path: string): Promise<string> {
    return this.#send("GET", path);
  }

  async create(path: string, object: unknown): Promise<void> {
    await this.#send("POST", path, { type: "application/json", body: JSON.stringify(object) });
  }

  async patch(path: string, patch: unknown, type: PatchType = "merge"): Promise<void> {
    const mediaType =
      type === "merge" ? "application/merge-patch+json" : "application/strategic-merge-patch+json";
    await this.#send("PATCH", path, { type: mediaType, body: JSON.stringify(patch) });
  }

  /** An object that is not there is fine. */
  async delete(path: string): Promise<void> {
    try {
      await this.#send("DELETE", path);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  async #send(
    method: string,
    path: string,
    content?: { readonly type: string; readonly body: string },
  ): Promise<string> {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const headers = content === undefined ? {} : { "content-type": content.type };
      const request = httpsRequest(
        `${APISERVER_URL}${path}`,
        { method, agent: this.#agent, headers, timeout: REQUEST_TIMEOUT_MS },
        resolve,
      );
      request.on("timeout", () => request.destroy(new Error("no answer in time")));
      request.on("error", (cause) =>
        reject(new E2eError("command", `${method} ${path}: ${cause.message}`, { cause })),
      );
      request.end(content?.body);
    });
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const status = response.statusCode ?? 0;
    if (status < 200 || status > 299)
      throw new ApiError(status, `${method} ${path} answered ${String(status)}: ${text.slice(0, 500)}`);
    return text;
  }
}
