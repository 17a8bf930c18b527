import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { Story } from "./testing/story.ts";
import { checkTranscript } from "./testing/transcript.ts";

const FOLDER = join(import.meta.dirname, "testdata");

describe("raft transcripts", () => {
  for (const file of readdirSync(FOLDER).sort()) {
    if (!file.endsWith(".txt")) continue;
    it(file.slice(0, -".txt".length).replaceAll("-", " "), () => {
      const story = new Story();
      checkTranscript(join(FOLDER, file), (command) => story.run(command));
    });
  }
});
