import { KubeError } from "./types.ts";

export interface ReadLinesOptions {
  /** A longer line ends the reading with an error: one bad object must not fill the memory. */
  readonly lineBytesMax: number;
  /** Something arrived, whatever it is: the connection lives. */
  readonly onBytes: () => void;
}

const NEWLINE = 0x0a;

/**
 * Cuts a stream into lines; what follows the last newline is dropped, because a cut line is not a message.
 * @throws KubeError `unavailable` on a line that is too long
 */
export async function* readLines(
  bytes: AsyncIterable<Uint8Array>,
  options: ReadLinesOptions,
): AsyncGenerator<string, void, undefined> {
  let parts: Uint8Array[] = [];
  let held = 0;
  for await (const chunk of bytes) {
    options.onBytes();
    let from = 0;
    for (;;) {
      const end = chunk.indexOf(NEWLINE, from);
      const part = chunk.subarray(from, end === -1 ? undefined : end);
      held += part.length;
      if (held > options.lineBytesMax) {
        throw new KubeError("unavailable", `watch: a line of more than ${options.lineBytesMax} bytes`);
      }
      parts.push(part);
      if (end === -1) break;
      const line = Buffer.concat(parts).toString("utf8");
      parts = [];
      held = 0;
      from = end + 1;
      if (line.trim() !== "") yield line;
    }
  }
}
