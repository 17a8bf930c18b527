// The package as it would be published, and an empty project of somebody who has installed it.
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { run, type RunOptions } from "../support/run.ts";

const ROOT = join(import.meta.dirname, "../..");
const COMMAND_MS_MAX = 180_000;

/** Like a user's, and stricter. What is not said about modules comes from the test. */
const COMPILER_OPTIONS = {
  target: "ES2022",
  lib: ["ES2022"],
  types: ["node"],
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  noPropertyAccessFromIndexSignature: true,
  skipLibCheck: false,
  noEmit: true,
};

/** What a command printed. @throws Error with all of it when the command has failed */
export async function succeed(
  command: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<string> {
  const { code, out, err } = await run(command, args, { timeoutMs: COMMAND_MS_MAX, ...options });
  if (code === 0) return out;
  throw new Error(`${command} ${args.join(" ")} ended with ${String(code)}\n${out}${err}`);
}

/** A development tool of this repository, by the name of its command. */
export function tool(name: string, args: readonly string[], options: RunOptions = {}): Promise<string> {
  return succeed(process.execPath, [join(ROOT, "node_modules/.bin", name), ...args], options);
}

export class Project {
  readonly folder: string = mkdtempSync(join(tmpdir(), "lockstep-package-"));
  /** The package that was packed. */
  tarball = "";

  /** Builds and packs the client, and installs that alone: without a registry, so that nothing else can come. */
  static async withClient(): Promise<Project> {
    const project = new Project();
    const packages = join(project.folder, "packages");
    await succeed(process.execPath, [join(ROOT, "scripts/build.ts"), "--packages", packages]);
    const pack = ["pack", "--silent", "--pack-destination", project.folder, join(packages, "client")];
    project.tarball = join(project.folder, (await succeed("npm", pack)).trim());
    writeFileSync(join(project.folder, "package.json"), '{ "name": "consumer", "type": "module" }\n');
    await succeed("npm", ["install", "--offline", "--no-audit", "--no-fund", project.tarball], {
      cwd: project.folder,
    });
    cpSync(join(import.meta.dirname, "consumer/main.ts"), join(project.folder, "main.ts"));
    return project;
  }

  /** All that was installed, by name. */
  get installed(): readonly string[] {
    const modules = join(this.folder, "node_modules");
    return readdirSync(modules)
      .filter((name) => !name.startsWith("."))
      .flatMap((name) =>
        name.startsWith("@") ? readdirSync(join(modules, name)).map((below) => `${name}/${below}`) : [name],
      );
  }

  /** Node's types, which are the project's own business. */
  addNodeTypes(): void {
    const link = join(this.folder, "node_modules/@types/node");
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(ROOT, "node_modules/@types/node"), link);
  }

  /** Checks main.ts. @throws Error with what the compiler has to say */
  async checkTypes(modules: Readonly<Record<string, string>>): Promise<void> {
    const config = { compilerOptions: { ...COMPILER_OPTIONS, ...modules }, files: ["main.ts"] };
    writeFileSync(join(this.folder, "tsconfig.json"), JSON.stringify(config));
    await tool("tsc", ["-p", "."], { cwd: this.folder });
  }

  /** Runs main.ts. @returns what it printed */
  start(node: string, endpoints: readonly string[]): Promise<string> {
    const env = { ...process.env, LOCKSTEP_ENDPOINTS: endpoints.join(",") };
    // Node strips the types of it by itself, and 22 says that it does.
    return succeed(node, ["--disable-warning=ExperimentalWarning", "main.ts"], { cwd: this.folder, env });
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
