// Which images a node has, written on its disk: so that nothing is imported twice, and a successor gets all of it.
import { existsSync, readFileSync, writeFileSync } from "node:fs";

/** An image came out of an archive, or is another name of one that is there. */
export type ImportedImage =
  { readonly image: string; readonly file: string } | { readonly image: string; readonly source: string };

/** The list with one more, which takes the place of an earlier one of its name. */
export function withImage(list: readonly ImportedImage[], added: ImportedImage): readonly ImportedImage[] {
  return [...list.filter(({ image }) => image !== added.image), added];
}

/** Is exactly this archive what the name stands for now? An archive's file never changes: its folder is named by its content. */
export function hasArchive(list: readonly ImportedImage[], image: string, file: string): boolean {
  return list.some((one) => one.image === image && "file" in one && one.file === file);
}

export function readImported(file: string): readonly ImportedImage[] {
  if (!existsSync(file)) return [];
  return JSON.parse(readFileSync(file, "utf8")) as readonly ImportedImage[];
}

export function writeImported(file: string, list: readonly ImportedImage[]): void {
  writeFileSync(file, JSON.stringify(list));
}
