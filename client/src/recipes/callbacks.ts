import type { Client } from "../client.ts";

/** Where what a callback throws, and what ends its stream, goes. */
export type OnError = (error: unknown) => void;

/**
 * Hands a stream to a callback, one event after the other. A callback that is slow or throws delays nobody else: the
 * stream waits for it in a bounded buffer, and what it throws goes to `onError`.
 */
export async function deliver<T>(
  client: Client,
  events: AsyncIterable<T>,
  listener: (event: T) => unknown,
  onError: OnError,
): Promise<void> {
  try {
    for await (const event of events) {
      try {
        await listener(event);
      } catch (error) {
        report(client, error, onError);
      }
    }
  } catch (error) {
    report(client, error, onError);
  }
}

/** An `onError` that throws itself has nobody to tell: it surfaces as an uncaught exception, in a turn of its own. */
function report(client: Client, error: unknown, onError: OnError): void {
  try {
    onError(error);
  } catch (thrown) {
    client.runtime.afterTurn(() => {
      throw thrown;
    });
  }
}
