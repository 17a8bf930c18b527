/**
 * Text transcripts: `command`s, a line `----`, the expected output, an empty line. Files are run from top to bottom;
 * with `LOCKSTEP_REWRITE=1` the expectations are written anew, to be reviewed like code.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";

const SEPARATOR = "----";

interface Block {
  /** Comments and empty lines before the commands, kept as they are. */
  readonly preamble: readonly string[];
  readonly commands: readonly string[];
  readonly expected: readonly string[];
  readonly line: number;
}

/** @param run carries out one command line and gives back what there is to see */
export function checkTranscript(path: string, run: (command: string) => readonly string[]): void {
  const { blocks, rest } = parse(readFileSync(path, "utf8"));
  assert(blocks.length > 0, `${path} holds no commands`);
  const rewrite = process.env["LOCKSTEP_REWRITE"] === "1";
  const written: string[] = [];
  for (const block of blocks) {
    const lines = block.commands.flatMap((command) => run(command));
    const output = lines.length === 0 ? ["ok"] : lines;
    if (!rewrite) {
      const where = `${path}:${block.line}: ${block.commands.join("; ")}`;
      assert.deepEqual(output, block.expected, where);
    }
    written.push(...block.preamble, ...block.commands, SEPARATOR, ...output);
  }
  if (rewrite) writeFileSync(path, [...written, ...rest, ""].join("\n"));
}

function parse(text: string): { blocks: Block[]; rest: string[] } {
  const lines = text.replace(/\n$/, "").split("\n");
  const blocks: Block[] = [];
  let preamble: string[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at]!;
    if (line === "" || line.startsWith("#")) {
      preamble.push(line);
      at++;
      continue;
    }
    const start = at;
    while (at < lines.length && lines[at] !== SEPARATOR && lines[at] !== "") at++;
    assert.equal(lines[at], SEPARATOR, `commands at line ${start + 1} are followed by ${SEPARATOR}`);
    const commands = lines.slice(start, at);
    const from = ++at;
    while (at < lines.length && lines[at] !== "") at++;
    blocks.push({ preamble, commands, expected: lines.slice(from, at), line: start + 1 });
    preamble = [];
  }
  return { blocks, rest: preamble };
}
