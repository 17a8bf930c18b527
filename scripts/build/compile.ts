// One workspace's sources as JavaScript, file by file: `isolatedModules` promises that no file needs another one for that.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import ts from "typescript";

const OPTIONS: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2024,
  // Packages are `"type": "module"`; a lone file does not see that, so it is said here.
  module: ts.ModuleKind.ESNext,
  moduleDetection: ts.ModuleDetectionKind.Force,
  verbatimModuleSyntax: true,
  rewriteRelativeImportExtensions: true,
  newLine: ts.NewLineKind.LineFeed,
};

/** Tests and what only tests import are not shipped. */
export function isShipped(file: string): boolean {
  return (
    file.endsWith(".ts") &&
    !file.endsWith(".d.ts") &&
    !file.endsWith(".test.ts") &&
    !/(^|\/)(testing|testdata)\//.test(file)
  );
}

/** The same text as JavaScript. Throws an Error that names what is wrong with the source. */
export function compileText(file: string, text: string): string {
  const output = ts.transpileModule(text, {
    fileName: file,
    reportDiagnostics: true,
    compilerOptions: OPTIONS,
  });
  refuseProblems(file, output);
  return output.outputText;
}

function refuseProblems(file: string, { diagnostics = [] }: ts.TranspileOutput): void {
  const [problem] = diagnostics;
  if (problem !== undefined) {
    throw new Error(`${file}: ${ts.flattenDiagnosticMessageText(problem.messageText, " ")}`);
  }
}

/**
 * Compiles `workspace/src` into `workspace/dist` and takes out of it what is no source's any more. A source whose text
 * was compiled before is not compiled again. @returns how many were.
 */
export function compileWorkspace(root: string, workspace: string): number {
  const source = join(root, workspace, "src");
  const target = join(root, workspace, "dist");
  const earlier = readHashes(root, workspace);
  const hashes: Record<string, string> = {};
  const wanted = new Set<string>();
  let compiled = 0;
  for (const file of filesBelow(source).filter(isShipped)) {
    const text = readFileSync(join(source, file), "utf8");
    const stem = file.slice(0, -".ts".length);
    const output = join(target, `${stem}.js`);
    wanted.add(`${stem}.js`).add(`${stem}.d.ts`);
    const hash = hashOf(text);
    hashes[file] = hash;
    if (earlier[file] === hash && existsSync(output)) continue;
    const js = compileText(join(workspace, "src", file), text);
    mkdirSync(dirname(output), { recursive: true });
    writeFileSync(output, js);
    compiled += 1;
  }
  for (const file of existsSync(target) ? filesBelow(target) : []) {
    if (!wanted.has(file)) rmSync(join(target, file));
  }
  requireWholeImports(target);
  writeHashes(root, workspace, hashes);
  return compiled;
}

const cacheFile = (root: string, workspace: string): string =>
  join(root, "node_modules/.cache/lockstep-build", `${workspace}.json`);

/** Another compiler, or another way to call it, is another hash of every source. */
const COMPILER = `${ts.version}\n${readFileSync(import.meta.filename, "utf8")}`;

function hashOf(text: string): string {
  return createHash("sha256").update(COMPILER).update("\0").update(text).digest("hex");
}

/** By file; empty when there are none. A cache that cannot be read is as good as none. */
function readHashes(root: string, workspace: string): Readonly<Record<string, string>> {
  try {
    return JSON.parse(readFileSync(cacheFile(root, workspace), "utf8")) as Record<string, string>;
  } catch {
    return {};
  }
}

function writeHashes(root: string, workspace: string, hashes: Readonly<Record<string, string>>): void {
  const file = cacheFile(root, workspace);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, JSON.stringify(hashes));
}

/** A shipped file that imports one that is not would be found out only where it is run. */
function requireWholeImports(folder: string): void {
  for (const file of filesBelow(folder).filter((name) => name.endsWith(".js"))) {
    const { importedFiles } = ts.preProcessFile(readFileSync(join(folder, file), "utf8"), true, true);
    for (const { fileName } of importedFiles) {
      if (fileName.startsWith(".") && !existsSync(join(folder, dirname(file), fileName))) {
        throw new Error(`${join(folder, file)} imports ${fileName}, which is not shipped`);
      }
    }
  }
}

/** Relative paths of all files, sorted. Links are not followed: an image's program has one to itself. */
export function filesBelow(folder: string): readonly string[] {
  const files: string[] = [];
  const walk = (below: string): void => {
    for (const entry of readdirSync(join(folder, below), { withFileTypes: true })) {
      const path = join(below, entry.name);
      if (entry.isDirectory()) walk(path);
      else if (entry.isFile()) files.push(path);
    }
  };
  walk("");
  return files.sort();
}
