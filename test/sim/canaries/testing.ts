import { execFile } from "node:child_process";
import { launchOf, pathOf } from "./patching.ts";

export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a module in a process that loads production with a canary; an empty name: without one. */
export function runWith(canary: string, module: string): Promise<Ran> {
  const { execArgv, env: added } = launchOf(canary);
  const args = [...execArgv, "--input-type=module-typescript", "--eval", module];
  const env = { ...process.env, ...added };
  return new Promise((resolve) => {
    execFile(process.execPath, args, { env, cwd: pathOf("") }, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === "number" ? error.code : -1;
      resolve({ code, stdout, stderr });
    });
  });
}

/** `import` of a file of the repository, as source text. */
export function importOf(names: string, file: string): string {
  return `import { ${names} } from ${JSON.stringify(`file://${pathOf(file)}`)};\n`;
}
