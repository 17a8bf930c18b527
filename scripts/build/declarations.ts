// Declaration files, which only packages need. One program over all workspaces: file by file, the compiler does not know
// the library's symbols and writes members such as [Symbol.asyncDispose] twice.
import { mkdirSync, writeFileSync } from "node:fs";
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
        writeFileSync(target, text);
      },
      undefined,
      true,
    );
    const [problem] = diagnostics;
    if (problem !== undefined) refuse(problem, relative(root, file));
  }
}

function refuse(problem: ts.Diagnostic, file: string = "tsconfig.json"): never {
  throw new Error(`${file}: ${ts.flattenDiagnosticMessageText(problem.messageText, " ")}`);
}
