// The folder that an image holds: a program with exactly the packages that it needs at run time, taken from what the
// lockfile installed, so that what was tested is what runs.
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { filesBelow } from "./compile.ts";
import { SHIPPED, readManifest, stagePackage } from "./packages.ts";
import { productionClosure, type Lockfile } from "./closure.ts";

export type ImageName = "cell" | "operator";

/** `program`: its dist/main.js is what the image starts. `tools`: commands for people who look into a running pod. */
const IMAGES: Readonly<Record<ImageName, { readonly program: string; readonly tools: readonly string[] }>> = {
  cell: { program: "cell", tools: ["cli"] },
  operator: { program: "operator", tools: [] },
};

/** Dependencies that only compile or describe their package: nothing of them is loaded at run time. */
const BUILD_ONLY: readonly RegExp[] = [/^@types\//, /^prebuildify$/, /^napi-macros$/];

/** Folders at the top of a package that it never loads from. */
const IDLE_FOLDERS: ReadonlySet<string> = new Set(
  "test tests __tests__ docs doc example examples bench benchmark benchmarks integration .github".split(" "),
);

/** The workspaces whose compiled form is in the image, the program first. */
export function workspacesOf(root: string, image: ImageName): readonly string[] {
  const { program, tools } = IMAGES[image];
  return [program, ...productionClosure(lockfile(root), [program, ...tools], BUILD_ONLY).workspaces].filter(
    (one, index, all) => all.indexOf(one) === index,
  );
}

/**
 * Fills `into` (emptied first): the program's package at its top, everything else below its node_modules, and its
 * tools' commands in bin/. @returns the size in bytes and how many packages are in node_modules.
 */
export function assembleImage(
  root: string,
  image: ImageName,
  into: string,
): { readonly bytes: number; readonly packages: number } {
  const { program, tools } = IMAGES[image];
  const closure = productionClosure(lockfile(root), [program, ...tools], BUILD_ONLY);
  rmSync(into, { recursive: true, force: true });
  stagePackage(root, program, into);
  mkdirSync(join(into, "node_modules/@lockstep"), { recursive: true });
  for (const workspace of closure.workspaces) {
    if (!SHIPPED.includes(workspace)) throw new Error(`${workspace} is not made to leave the repository`);
    const place = join(into, "node_modules", readManifest(join(root, workspace)).name);
    if (workspace !== program) stagePackage(root, workspace, place);
  }
  for (const path of closure.packages) copyPackage(root, path, into);
  for (const file of filesBelow(into)) if (file.endsWith(".d.ts")) rmSync(join(into, file));
  const bytes = filesBelow(into).reduce((sum, file) => sum + statSync(join(into, file)).size, 0);
  for (const tool of tools) linkCommands(into, join("node_modules", readManifest(join(root, tool)).name));
  // Tools find the program under its package's name, as they do in the repository.
  const self = join(into, "node_modules", readManifest(join(root, program)).name);
  if (tools.length > 0) symlinkSync(relative(dirname(self), into), self);
  return { bytes, packages: closure.packages.length + closure.workspaces.length };
}

function lockfile(root: string): Lockfile {
  return JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as Lockfile;
}

function copyPackage(root: string, path: string, into: string): void {
  const source = join(root, path);
  if (!existsSync(source)) throw new Error(`${path} is not installed: run npm ci`);
  cpSync(source, join(into, path), {
    recursive: true,
    dereference: true,
    filter: (file) => isNeeded(relative(source, file)),
  });
}

/**
 * Whether a file of an installed package (path inside it) can be needed by a running program on this machine's kind:
 * no declarations, source maps, documentation, tests, sources of native code, or binaries for other platforms.
 * Licences stay.
 */
export function isNeeded(file: string): boolean {
  const [top = "", ...below] = file.split("/");
  if (top === "node_modules") return below.length === 0;
  if (below.length === 0 && IDLE_FOLDERS.has(top)) return false;
  if (top === "prebuilds" && below[0] !== undefined) {
    return below[0] === `${process.platform}-${process.arch}`;
  }
  if (top === "deps" || file === "prebuilds.zip") return false;
  const name = basename(file);
  if (/^(licen[cs]e|notice|copying)/i.test(name)) return true;
  return !/\.(map|md|markdown|[cm]?ts|cc|cpp|h|gypi?|flow|tsbuildinfo)$/.test(name);
}

/** Where Node is in an image: the official ones have it there. */
const IMAGE_NODE = "/usr/local/bin/node";

/**
 * Makes a package's commands findable in bin/, for `kubectl exec POD -- COMMAND`. They name Node by its path: an image
 * need not have `env`.
 */
function linkCommands(into: string, path: string): void {
  const { bin = {} } = readManifest(join(into, path)) as { bin?: Readonly<Record<string, string>> };
  mkdirSync(join(into, "bin"), { recursive: true });
  for (const [command, file] of Object.entries(bin)) {
    const launcher = join(into, path, file);
    const text = readFileSync(launcher, "utf8");
    writeFileSync(launcher, text.replace(/^#!.*/, `#!${IMAGE_NODE}`), { mode: 0o755 });
    symlinkSync(join("..", path, file), join(into, "bin", command));
  }
}
