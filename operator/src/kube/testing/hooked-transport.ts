import type { ApiRequest, Transport } from "../transport.ts";

/**
 * Before and after every request that passes: a test counts writes, crashes the program at one of them, delays or refuses.
 * What a hook throws or rejects with becomes the request's failure.
 */
export interface TransportHooks {
  /** Nothing was sent yet. */
  readonly before?: (request: ApiRequest) => void | Promise<void>;
  /** The apiserver has answered with this status; the program does not know yet. */
  readonly after?: (request: ApiRequest, status: number) => void | Promise<void>;
}

export function hookedTransport(inner: Transport, hooks: TransportHooks): Transport {
  return {
    async send(request) {
      await hooks.before?.(request);
      const response = await inner.send(request);
      await hooks.after?.(request, response.status);
      return response;
    },
    close: () => inner.close(),
  };
}
