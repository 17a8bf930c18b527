import type { ApiRequest, ApiResponse, Transport } from "../transport.ts";
import type { FakeApiServer, FakeSink } from "./fake-apiserver.ts";

/** Straight into a {@link FakeApiServer}, without sockets: what happens depends on the test alone. */
export function fakeTransport(server: FakeApiServer): Transport {
  return { send: (request) => exchange(server, request), close: () => Promise.resolve() };
}

function exchange(server: FakeApiServer, request: ApiRequest): Promise<ApiResponse> {
  return new Promise((resolve, reject) => {
    const { signal } = request;
    if (signal.aborted) {
      reject(signal.reason as Error);
      return;
    }
    const body = new Chunks();
    const fail = (error: Error): void => {
      body.fail(error);
      reject(error);
    };
    const sink: FakeSink = {
      head: (status, headers) =>
        resolve({ status, retryAfter: headers?.["retry-after"], body: body.read(leave) }),
      write: (text) => body.push(Buffer.from(text)),
      end: () => body.end(),
      reset: () => fail(new Error("read ECONNRESET")),
    };
    const left: { leave?: () => void } = {};
    const leave = (): void => {
      signal.removeEventListener("abort", abort);
      left.leave?.();
    };
    const abort = (): void => {
      leave();
      fail(signal.reason as Error);
    };
    signal.addEventListener("abort", abort, { once: true });
    left.leave = server.handle(
      { method: request.method, path: request.path, contentType: request.contentType, body: request.body },
      sink,
    );
  });
}

class Chunks {
  private readonly held: Uint8Array[] = [];
  private ended = false;
  private error: Error | undefined;
  private wake: (() => void) | undefined;

  push(chunk: Uint8Array): void {
    this.held.push(chunk);
    this.wake?.();
  }

  end(): void {
    this.ended = true;
    this.wake?.();
  }

  fail(error: Error): void {
    this.error = error;
    this.wake?.();
  }

  async *read(leave: () => void): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      for (;;) {
        const chunk = this.held.shift();
        if (chunk !== undefined) yield chunk;
        else if (this.error !== undefined) throw this.error;
        else if (this.ended) return;
        else await this.more();
      }
    } finally {
      leave();
    }
  }

  private more(): Promise<void> {
    return new Promise((resolve) => {
      this.wake = () => {
        this.wake = undefined;
        resolve();
      };
    });
  }
}
