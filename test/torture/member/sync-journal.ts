import { appendFileSync, readFileSync, renameSync, writeFileSync } from "node:fs";

/** The unit a disk writes whole or not at all. */
export const SECTOR_BYTES = 512;
/** Beyond this the journal is written anew, with what still counts only. */
const JOURNAL_BYTES_MAX = 8 * 1024 * 1024;

/** What one name in a directory pointed to before and after a change: inode numbers; null: no such name. */
export type NameChange = readonly [name: string, before: number | null, after: number | null];

interface DirectoryChange {
  readonly sequence: number;
  readonly names: readonly NameChange[];
}

/** What a power cut could still take back. */
export interface Unsynced {
  /** By inode: the durable bytes of each sector that was written and not synced. */
  readonly sectors: Map<number, Map<number, Buffer>>;
  /** By directory: its changes since its last fsync, oldest first. */
  readonly changes: Map<string, DirectoryChange[]>;
}

type JournalLine =
  | {
      readonly kind: "write";
      readonly id: number;
      readonly inode: number;
      readonly sector: number;
      readonly old: string;
    }
  | { readonly kind: "durable"; readonly id: number }
  | { readonly kind: "zeroed"; readonly inode: number }
  | {
      readonly kind: "change";
      readonly directory: string;
      readonly sequence: number;
      readonly names: readonly NameChange[];
    }
  | { readonly kind: "synced"; readonly directory: string; readonly upTo: number };

/**
 * The memory of what a member's disk was asked to keep and has not yet promised to keep. It lives in a file of its own
 * beside the member's, because the process is killed with no warning: what was handed to the kernel before a kill -9
 * is still in that file, and nothing of the journal itself must survive a real power cut.
 */
export class SyncJournal {
  readonly state: Unsynced = { sectors: new Map(), changes: new Map() };
  readonly #path: string;
  readonly #writes = new Map<
    number,
    { readonly inode: number; readonly from: number; readonly count: number }
  >();
  #bytes = 0;
  #lastId = 0;
  #lastSequence = 0;

  /** Reads what an earlier life of the member left. */
  constructor(path: string) {
    this.#path = path;
    for (const line of readLines(path)) this.#fold(line);
    // No write of an earlier life will ever be reported durable.
    this.#writes.clear();
    this.#rewrite();
  }

  /** Before bytes are written: `old` is what the sectors from `sector` on hold. @returns the write's id */
  willWrite(inode: number, sector: number, old: Buffer): number {
    const id = this.#lastId + 1;
    this.#append({ kind: "write", id, inode, sector, old: old.toString("base64") });
    return id;
  }

  /** The write is durable. */
  isDurable(id: number): void {
    this.#append({ kind: "durable", id });
  }

  /** The file holds zeros, durably. */
  zeroed(inode: number): void {
    this.#append({ kind: "zeroed", inode });
  }

  changed(directory: string, names: readonly NameChange[]): void {
    this.#append({ kind: "change", directory, sequence: this.#lastSequence + 1, names });
  }

  /** Call before the fsync of a directory: names what it will cover. */
  get sequence(): number {
    return this.#lastSequence;
  }

  /** @returns inodes that no change can bring back any more */
  synced(directory: string, upTo: number): number[] {
    const settled = (this.state.changes.get(directory) ?? []).filter(({ sequence }) => sequence <= upTo);
    this.#append({ kind: "synced", directory, upTo });
    const pending = this.pendingInodes();
    return settled
      .flatMap(({ names }) => names.flatMap(([, before, after]) => [before, after]))
      .filter((inode) => inode !== null && !pending.has(inode)) as number[];
  }

  /** Inodes that a power cut may have to bring back. */
  pendingInodes(): Set<number> {
    const inodes = new Set<number>();
    for (const { names } of [...this.state.changes.values()].flat()) {
      for (const [, before, after] of names) {
        if (before !== null) inodes.add(before);
        if (after !== null) inodes.add(after);
      }
    }
    return inodes;
  }

  #append(line: JournalLine): void {
    this.#fold(line);
    const text = `${JSON.stringify(line)}\n`;
    appendFileSync(this.#path, text);
    this.#bytes += text.length;
    if (this.#bytes > JOURNAL_BYTES_MAX && this.#writes.size === 0) this.#rewrite();
  }

  #fold(line: JournalLine): void {
    switch (line.kind) {
      case "write":
        this.#lastId = Math.max(this.#lastId, line.id);
        this.#willWrite(line.id, line.inode, line.sector, Buffer.from(line.old, "base64"));
        break;
      case "durable":
        this.#durable(line.id);
        break;
      case "zeroed":
        this.state.sectors.delete(line.inode);
        break;
      case "change": {
        this.#lastSequence = Math.max(this.#lastSequence, line.sequence);
        const changes = this.state.changes.get(line.directory) ?? [];
        changes.push(line);
        this.state.changes.set(line.directory, changes);
        break;
      }
      case "synced": {
        const changes = this.state.changes.get(line.directory) ?? [];
        const left = changes.filter(({ sequence }) => sequence > line.upTo);
        if (left.length === 0) this.state.changes.delete(line.directory);
        else this.state.changes.set(line.directory, left);
        break;
      }
    }
  }

  #willWrite(id: number, inode: number, from: number, old: Buffer): void {
    const sectors = this.state.sectors.get(inode) ?? new Map<number, Buffer>();
    this.state.sectors.set(inode, sectors);
    const count = Math.ceil(old.length / SECTOR_BYTES);
    for (let n = 0; n < count; n += 1) {
      // What is durable stays so, however often the sector is written before the next sync.
      if (!sectors.has(from + n)) {
        sectors.set(from + n, old.subarray(n * SECTOR_BYTES, (n + 1) * SECTOR_BYTES));
      }
    }
    this.#writes.set(id, { inode, from, count });
  }

  #durable(id: number): void {
    const write = this.#writes.get(id);
    if (write === undefined) return;
    this.#writes.delete(id);
    const sectors = this.state.sectors.get(write.inode);
    if (sectors === undefined) return;
    for (let n = 0; n < write.count; n += 1) sectors.delete(write.from + n);
    if (sectors.size === 0) this.state.sectors.delete(write.inode);
  }

  #rewrite(): void {
    const lines: JournalLine[] = [];
    for (const [inode, sectors] of this.state.sectors) {
      for (const [sector, old] of sectors) {
        lines.push({ kind: "write", id: 0, inode, sector, old: old.toString("base64") });
      }
    }
    for (const [directory, changes] of this.state.changes) {
      for (const change of changes) lines.push({ kind: "change", directory, ...change });
    }
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
    writeFileSync(`${this.#path}.tmp`, text);
    renameSync(`${this.#path}.tmp`, this.#path);
    this.#bytes = text.length;
  }
}

/** A last line that the kill cut short is left out: its write had not begun. */
function* readLines(path: string): Iterable<JournalLine> {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return;
  }
  const lines = text.split("\n");
  lines.pop();
  for (const line of lines) yield JSON.parse(line) as JournalLine;
}
