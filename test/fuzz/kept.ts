/** Inputs that once were findings, kept for good. */
import { readdirSync, readFileSync } from "node:fs";

export interface Kept {
  /** File name. */
  readonly file: string;
  readonly target: string;
  readonly hex: string;
  /** What was wrong, in a sentence. */
  readonly why: string;
  /** How the decoder must end now. */
  readonly verdict: "accepted" | "refused";
}

export function readKept(): Kept[] {
  const folder = new URL("./kept/", import.meta.url);
  return readdirSync(folder)
    .filter((file) => file.endsWith(".json"))
    .sort()
    .map((file) => {
      const kept = JSON.parse(readFileSync(new URL(file, folder), "utf8")) as Omit<Kept, "file">;
      return { file, ...kept };
    });
}
