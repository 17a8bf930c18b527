// Small laws of the repository that no linter knows: workspaces depend only along the arrows, nothing names a
// registry host or a path of somebody's machine, no FIXME, one `# Title` per page, every dependency is explained.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const problems: string[] = [];

interface Manifest {
  readonly name: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}
const manifest = (folder: string): Manifest =>
  JSON.parse(readFileSync(join(root, folder, "package.json"), "utf8")) as Manifest;

/** What each workspace may depend on (docs/architecture.md). cli names the cell because it starts it as a process. */
const arrows: Readonly<Record<string, readonly string[]>> = {
  proto: [],
  gateway: ["@lockstep/proto"],
  client: ["@lockstep/proto"],
  cell: ["@lockstep/proto", "@lockstep/gateway"],
  cli: ["@lockstep/proto", "@lockstep/client", "@lockstep/cell"],
  operator: ["@lockstep/proto"],
};
const external = new Set<string>();
for (const folder of ["", ...Object.keys(arrows), "test", "bench", "e2e"]) {
  const { dependencies = {}, devDependencies = {} } = manifest(folder);
  for (const name of Object.keys({ ...dependencies, ...devDependencies })) {
    if (!name.startsWith("@lockstep/") && name !== "lockstep") external.add(name);
    else if (arrows[folder]?.includes(name) === false)
      problems.push(`${folder}/package.json may not depend on ${name}`);
  }
}

const explained = readFileSync(join(root, "docs/dependencies.md"), "utf8");
for (const name of external) {
  if (!explained.includes(`\`${name}\``)) problems.push(`docs/dependencies.md has no line for \`${name}\``);
}

const files = spawnSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
  cwd: root,
  encoding: "utf8",
})
  .stdout.split("\n")
  .filter((file) => file !== "" && existsSync(join(root, file)) && !file.startsWith("proto/src/gen/"));
const here = join(root, "..") + "/";
for (const file of files) {
  if (/\.(ts|mjs|js|md|json|yaml|proto|go|txt)$/.exec(file) === null) continue;
  const text = readFileSync(join(root, file), "utf8");
  if (file !== "scripts/tidy.ts" && /\bFIXME\b/.test(text)) problems.push(`${file}: FIXME`);
  if (text.includes(here) && here.length > 5) problems.push(`${file}: names a path of this machine`);
  if (file === "package-lock.json" && /"resolved": "http/.test(text))
    problems.push(`${file}: names a registry host`);
  if (file.endsWith(".md") && file !== "CHANGELOG.md") {
    const titles = text.replace(/^```[\s\S]*?^```/gm, "").match(/^# .+$/gm) ?? [];
    if (titles.length !== 1)
      problems.push(`${file}: wants exactly one "# Title", has ${String(titles.length)}`);
  }
}

for (const problem of problems) console.error(problem);
process.exit(problems.length === 0 ? 0 : 1);
