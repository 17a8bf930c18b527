// A workspace in the form in which it leaves the repository: compiled, with a package.json that says so.
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Workspaces that leave the repository, in the order of their arrows. */
export const SHIPPED: readonly string[] = ["proto", "gateway", "client", "cell", "cli", "operator"];

/** Files besides dist/ that a package has at run time or shows to people. */
const BESIDES_DIST: readonly string[] = ["bin", "openapi.yaml"];

export interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly exports?: Readonly<Record<string, unknown>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly [field: string]: unknown;
}

export function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Manifest;
}

/** Fields of a package.json that mean nothing outside of the repository. */
const REPOSITORY_ONLY: ReadonlySet<string> = new Set(["private", "scripts", "devDependencies"]);

/**
 * The package.json of the compiled package. Exports of sources become exports of dist/ (one whose file is not shipped,
 * as those for tests, goes); what only the repository needs goes too.
 * `isThere` says whether the package has that file.
 */
export function shippedManifest(manifest: Manifest, isThere: (file: string) => boolean): Manifest {
  const { exports: sources = {}, ...fields } = manifest;
  const rest = Object.fromEntries(Object.entries(fields).filter(([field]) => !REPOSITORY_ONLY.has(field)));
  const exports = Object.entries(sources).flatMap(([name, source]): [string, unknown][] => {
    const stem = typeof source === "string" ? /^\.\/src\/(.+)\.ts$/.exec(source)?.[1] : undefined;
    if (stem === undefined) throw new Error(`${manifest.name} exports ${name} from what is not in src/`);
    if (!isThere(`dist/${stem}.js`)) return [];
    return [[name, { types: `./dist/${stem}.d.ts`, default: `./dist/${stem}.js` }]];
  });
  return {
    ...rest,
    name: manifest.name,
    version: manifest.version,
    ...(exports.length === 0 ? {} : { exports: Object.fromEntries(exports) }),
    files: ["dist", ...BESIDES_DIST.filter(isThere)],
  };
}

/** Puts the compiled package into `into` (emptied first). The workspace must have been compiled. */
export function stagePackage(root: string, workspace: string, into: string): void {
  const source = join(root, workspace);
  const isThere = (file: string): boolean => existsSync(join(source, file));
  if (!isThere("dist")) throw new Error(`${workspace} is not compiled`);
  rmSync(into, { recursive: true, force: true });
  mkdirSync(into, { recursive: true });
  for (const part of ["dist", ...BESIDES_DIST].filter(isThere)) {
    cpSync(join(source, part), join(into, part), { recursive: true });
  }
  cpSync(join(root, "LICENSE"), join(into, "LICENSE"));
  const manifest = shippedManifest(readManifest(source), isThere);
  writeFileSync(join(into, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
}
