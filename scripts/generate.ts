// Generates what has a source elsewhere: proto/src/gen from the .proto files, types, reference and chart from crds/.
// `--check` fails when the committed files are stale.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const committed = join(root, "proto/src/gen");

function generateInto(directory: string): void {
  const template = readFileSync(join(root, "buf.gen.yaml"), "utf8").replace("proto/src/gen", directory);
  const result = spawnSync(join(root, "node_modules/.bin/buf"), ["generate", "--template", template], {
    cwd: root,
    stdio: "inherit",
  });
  if (result.status !== 0) process.exit(1);
  writeDescriptors(directory);
}

/** All .proto sources as one FileDescriptorSet: what gRPC reflection answers from. */
function writeDescriptors(directory: string): void {
  const arguments_ = ["build", "--as-file-descriptor-set", "--exclude-source-info", "-o", "-#format=binpb"];
  const { status, stdout } = spawnSync(join(root, "node_modules/.bin/buf"), arguments_, { cwd: root });
  if (status !== 0) process.exit(1);
  const lines = stdout.toString("base64").match(/.{1,100}/g) ?? [];
  writeFileSync(
    join(directory, "descriptors.ts"),
    "// Generated from the .proto sources. DO NOT EDIT.\n\n/* eslint-disable */\n" +
      "/** A serialized google.protobuf.FileDescriptorSet. */\n" +
      `export const FILE_DESCRIPTOR_SET: Buffer = Buffer.from(\n  [\n${lines.map((line) => `    "${line}",\n`).join("")}  ].join(""),\n  "base64",\n);\n`,
  );
}

function listFiles(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(directory.length))
    .sort();
}

if (process.argv.includes("--check")) {
  const fresh = mkdtempSync(join(tmpdir(), "lockstep-gen-"));
  generateInto(fresh);
  const same =
    listFiles(fresh).join("\n") === listFiles(committed).join("\n") &&
    listFiles(fresh).every((file) =>
      readFileSync(join(fresh, file)).equals(readFileSync(join(committed, file))),
    );
  rmSync(fresh, { recursive: true });
  if (!same) {
    console.error("proto/src/gen is out of date: run `npm run gen` and commit the result");
    process.exit(1);
  }
} else {
  rmSync(committed, { recursive: true, force: true });
  generateInto(committed);
}

// The chart's part comes after what it is made from.
for (const program of ["crds/src/main.ts", "charts/src/main.ts"]) {
  const flags = process.argv.includes("--check") ? ["--check"] : [];
  const { status } = spawnSync(process.execPath, [join(root, program), ...flags], {
    cwd: root,
    stdio: "inherit",
  });
  if (status !== 0) process.exit(1);
}
