import { LockstepError, connect } from "@lockstep/client";
import type { Client, ConnectOptions } from "@lockstep/client";

/** Default deadline of a write. */
const WRITE_MS_MAX = 5_000;

/** What a load of writers has been promised: the largest acknowledged value of each of their keys. */
export interface Acknowledged {
  readonly key: string;
  readonly value: number;
  readonly revision: number;
}

/**
 * Writers that count upwards, each on its own key. A write's outcome may be unknown; what was acknowledged must be
 * there at the end, and nothing smaller than it.
 */
export class Writers {
  readonly #client: Client;
  readonly #acknowledged = new Map<string, Acknowledged>();
  readonly #loops: Promise<void>[];
  #stopping = false;
  #count = 0;
  #unknown = 0;
  #failed = 0;
  /** The longest time without any acknowledgement. */
  longestGapMs = 0;
  #lastAckMs = performance.now();

  private constructor(client: Client, writers: number) {
    this.#client = client;
    this.#loops = Array.from({ length: writers }, (_, n) => this.#write(`/writer/${String(n)}`));
  }

  static async start(
    endpoints: readonly string[],
    writers = 16,
    options: Pick<ConnectOptions, "tls" | "transport" | "deadlineMs"> = {},
  ): Promise<Writers> {
    const client = await connect({ endpoints: [...endpoints], deadlineMs: WRITE_MS_MAX, ...options });
    return new Writers(client, writers);
  }

  get acknowledgedCount(): number {
    return this.#count;
  }

  get unknownCount(): number {
    return this.#unknown;
  }

  /** Writes that ended with any error at all. */
  get failedCount(): number {
    return this.#failed;
  }

  /** Waits until `more` further writes were acknowledged. */
  async progress(more: number): Promise<void> {
    const goal = this.#count + more;
    const deadline = performance.now() + 60_000;
    while (this.#count < goal) {
      if (performance.now() > deadline) {
        throw new Error(`only ${String(this.#count)} of ${String(goal)} writes were acknowledged in time`);
      }
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  /** For clean-up when a test failed half-way: what is in flight fails at once. */
  abandon(): void {
    this.#stopping = true;
    this.#client.close();
  }

  async stop(): Promise<readonly Acknowledged[]> {
    this.#stopping = true;
    await Promise.all(this.#loops);
    this.#client.close();
    return [...this.#acknowledged.values()];
  }

  async #write(key: string): Promise<void> {
    for (let value = 1; !this.#stopping; value += 1) {
      try {
        const { revision } = await this.#client.put(key, String(value));
        const now = performance.now();
        this.longestGapMs = Math.max(this.longestGapMs, now - this.#lastAckMs);
        this.#lastAckMs = now;
        this.#count += 1;
        this.#acknowledged.set(key, { key, value, revision });
      } catch (error) {
        if (!(error instanceof LockstepError)) throw error;
        this.#failed += 1;
        if (error.outcome === "unknown") this.#unknown += 1;
      }
    }
  }
}

/** Fails unless every acknowledged write is there, or a later one of the same writer. */
export async function assertAllThere(
  endpoints: readonly string[],
  acknowledged: readonly Acknowledged[],
  options: Pick<ConnectOptions, "tls"> = {},
): Promise<void> {
  const client = await connect({ endpoints: [...endpoints], ...options });
  try {
    for (const { key, value, revision } of acknowledged) {
      const found = await client.get(key, { deadlineMs: 20_000 });
      const stored = Number(found?.text() ?? -1);
      if (found === undefined || stored < value || found.modRevision < revision) {
        throw new Error(
          `acknowledged write lost: ${key} = ${String(value)} at revision ${String(revision)}, found ${String(stored)} at ${String(found?.modRevision)}`,
        );
      }
    }
  } finally {
    client.close();
  }
}
