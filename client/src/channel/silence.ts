import type { Runtime } from "../runtime.ts";
import type { Link } from "./link.ts";

/** A member that owes an answer and gives no sign of life for this long is suspect. */
const SILENCE_MS = 1_000;

export interface SilenceHost {
  /** The active link, while it owes an answer: to a request, or to a renewal. */
  indebted(): Link | undefined;
  suspect(): void;
}

/** Notices a member that is connected and says nothing: cut off from the others, paused, or gone without a word. */
export class SilenceWatch {
  readonly #runtime: Runtime;
  readonly #host: SilenceHost;
  #cancel: (() => void) | undefined;

  constructor(runtime: Runtime, host: SilenceHost) {
    this.#runtime = runtime;
    this.#host = host;
  }

  /** Something was asked. @param owedNothing before it: then silence counts from now */
  asked(link: Link, owedNothing: boolean): void {
    if (owedNothing) link.asked(this.#runtime.now());
    if (this.#cancel === undefined && this.#host.indebted() !== undefined) this.#look();
  }

  close(): void {
    this.#cancel?.();
  }

  #look(): void {
    this.#cancel = this.#runtime.schedule(() => {
      this.#cancel = undefined;
      const link = this.#host.indebted();
      if (link === undefined) return;
      const now = this.#runtime.now();
      // Asked first: what moves on a slow line is not silent, however long it takes.
      if (!link.progressed(now) && now - link.quietSince >= SILENCE_MS) this.#host.suspect();
      this.#look();
    }, SILENCE_MS / 4);
  }
}
