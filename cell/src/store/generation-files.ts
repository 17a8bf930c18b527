import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";

/** File operations of a folder of generations; replaced in tests that crash between them. */
export interface GenerationFiles {
  /** Creates it with its parents; exists already: nothing. */
  makeDirectory(path: string): Promise<void>;
  list(directory: string): Promise<string[]>;
  /** undefined when it does not exist. */
  read(path: string): Promise<string | undefined>;
  /** Creates or replaces the file and fsyncs it. */
  writeDurably(path: string, text: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  syncDirectory(path: string): Promise<void>;
  /** A file or a folder with all it holds; absent: nothing. */
  removeTree(path: string): Promise<void>;
}

export const nodeGenerationFiles: GenerationFiles = {
  async makeDirectory(path) {
    await mkdir(path, { recursive: true });
  },
  list: async (directory) => await readdir(directory),
  async read(path) {
    try {
      return await readFile(path, "utf8");
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
      throw error;
    }
  },
  async writeDurably(path, text) {
    await using file = await open(path, "w");
    await file.writeFile(text);
    await file.sync();
  },
  rename: async (from, to) => await rename(from, to),
  async syncDirectory(path) {
    await using directory = await open(path, "r");
    await directory.sync();
  },
  async removeTree(path) {
    await rm(path, { recursive: true, force: true });
  },
};
