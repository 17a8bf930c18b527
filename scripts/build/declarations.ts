// Declaration files, which only packages need. One program over all workspaces: file by file, the compiler does not know
// the library's symbols and writes members such as [Symbol.asyncDispose] twice.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import ts from "typescript";
import { filesBelow, isShipped } from "./compile.ts";

/** Writes `X/dist/**.d.ts` of each workspace. Types are not checked. Throws an Error when a file cannot be declared. */
export function emitDeclarations(root: string, workspaces: readonly string[]): void {
  const config = ts.getParsedCommandLineOfConfigFile(
    join(root, "tsconfig.json"),
    { noEmit: false, declaration: true, emitDeclarationOnly: true, noCheck: true },
    { ...ts.sys, onUnRecoverableConfigFileDiagnostic: refuse },
  );
  if (config === undefined) throw new Error("tsconfig.json cannot be read");
  const targets = new Map<string, string>();
  for (const workspace of workspaces) {
    for (const file of filesBelow(join(root, workspace, "src")).filter(isShipped)) {
      const target = join(root, workspace, "dist", `${file.slice(0, -".ts".length)}.d.ts`);
      targets.set(join(root, workspace, "src", file), target);
    }
  }
  const program = ts.createProgram([...targets.keys()], config.options);
  for (const [file, target] of targets) {
    const { diagnostics } = program.emit(
      program.getSourceFile(file),
      (_name, text) => {
        mkdirSync(dirname(target), { recursive: true });
        writeFileSync(target, namingCompiledFiles(text));
      },
      undefined,
      true,
    );
    const [problem] = diagnostics;
    if (problem !== undefined) refuse(problem, relative(root, file));
  }
}

/** The compiler leaves `./x.ts` as it is; what is there is `x.js` and its declarations. */
function namingCompiledFiles(text: string): string {
  return text.replace(/((?:from|import) ?\(?)"(\.[^"]*)\.ts"/g, '$1"$2.js"');
}

/**
 * The declarations below `folder` that the named ones reach, themselves among them (paths without `.d.ts`).
 * @throws Error when one speaks of a package, which whoever installs this one need not have
 */
export function reachableDeclarations(folder: string, entries: readonly string[]): readonly string[] {
  const reached = new Set<string>();
  const waiting = [...entries];
  for (let stem = waiting.pop(); stem !== undefined; stem = waiting.pop()) {
    const file = `${stem}.d.ts`;
    if (reached.has(file)) continue;
    if (!existsSync(join(folder, file))) throw new Error(`${folder} has no ${file}`);
    reached.add(file);
    const { importedFiles } = ts.preProcessFile(readFileSync(join(folder, file), "utf8"), true, true);
    for (const { fileName } of importedFiles) {
      if (fileName.startsWith("node:")) continue;
      if (!fileName.startsWith("."))
        throw new Error(`${file} speaks of ${fileName}, which is another package`);
      waiting.push(join(dirname(file), fileName.replace(/\.js$/, "")));
    }
  }
  return [...reached].sort();
}

function refuse(problem: ts.Diagnostic, file: string = "tsconfig.json"): never {
  throw new Error(`${file}: ${ts.flattenDiagnosticMessageText(problem.messageText, " ")}`);
}
