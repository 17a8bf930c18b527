import { assert } from "../invariant.ts";

/**
 * The window of append messages on their way to one follower: a ring of (last index, bytes), bounded by count and by
 * bytes. The byte bound is soft: the message that crosses it is still let in (R24).
 */
export class Inflights {
  readonly #messagesMax: number;
  readonly #bytesMax: number;
  readonly #indexes: Float64Array;
  readonly #sizes: Float64Array;
  #start = 0;
  #count = 0;
  #bytes = 0;

  constructor(messagesMax: number, bytesMax: number) {
    assert(messagesMax > 0 && bytesMax > 0, "an empty window would never send");
    this.#messagesMax = messagesMax;
    this.#bytesMax = bytesMax;
    this.#indexes = new Float64Array(messagesMax);
    this.#sizes = new Float64Array(messagesMax);
  }

  get count(): number {
    return this.#count;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get full(): boolean {
    return this.#count >= this.#messagesMax || this.#bytes >= this.#bytesMax;
  }

  /** A message whose last entry is at `index` left. */
  add(index: number, bytes: number): void {
    assert(!this.full, "a full window takes no message", { count: this.#count, bytes: this.#bytes });
    const at = (this.#start + this.#count) % this.#messagesMax;
    this.#indexes[at] = index;
    this.#sizes[at] = bytes;
    this.#count++;
    this.#bytes += bytes;
  }

  /** The follower holds everything up to `index`: those messages arrived, whatever became of their answers. */
  freeUpTo(index: number): void {
    while (this.#count > 0 && (this.#indexes[this.#start] as number) <= index) {
      this.#bytes -= this.#sizes[this.#start] as number;
      this.#start = (this.#start + 1) % this.#messagesMax;
      this.#count--;
    }
  }

  reset(): void {
    this.#start = 0;
    this.#count = 0;
    this.#bytes = 0;
  }
}
