// A workspace in the form in which it leaves the repository: compiled, with a package.json that says so.
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { bundle, noticesOf, type Entries } from "./bundle.ts";
import { reachableDeclarations } from "./declarations.ts";

/** Workspaces that leave the repository, in the order of their arrows. */
export const SHIPPED: readonly string[] = ["proto", "gateway", "client", "cell", "cli", "operator"];

/** Of the packages that are inside this one. */
const NOTICES = "THIRD-PARTY-NOTICES";

/** Files besides dist/ that a package has at run time or shows to people. */
const BESIDES_DIST: readonly string[] = ["bin", "openapi.yaml", "README.md", NOTICES];

/**
 * Workspaces that people install by themselves: each is one package without any other. Named are the files that it
 * loads by their address and not by an import: they stand beside the one that does.
 */
const ALONE: Readonly<Record<string, Entries>> = {
  client: { "worker-main": "client/src/relay/worker-main.ts" },
};

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
  const exports = Object.keys(sources).flatMap((name): [string, unknown][] => {
    const stem = stemOf(manifest, name);
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

/** The source of an export: its path in src/, without `.ts`. */
function stemOf({ name, exports = {} }: Manifest, entry: string): string {
  const source = exports[entry];
  const stem = typeof source === "string" ? /^\.\/src\/(.+)\.ts$/.exec(source)?.[1] : undefined;
  if (stem === undefined) throw new Error(`${name} exports ${entry} from what is not in src/`);
  return stem;
}

/** Puts the package that is published into `into` (emptied first). The workspace must have been compiled. */
export async function stagePublished(root: string, workspace: string, into: string): Promise<void> {
  const byAddress = ALONE[workspace];
  if (byAddress === undefined) stagePackage(root, workspace, into);
  else await stageAlone(root, { workspace, byAddress }, into);
}

async function stageAlone(
  root: string,
  { workspace, byAddress }: { readonly workspace: string; readonly byAddress: Entries },
  into: string,
): Promise<void> {
  const source = join(root, workspace);
  // Its dependencies are inside.
  const manifest = { ...readManifest(source), dependencies: {} };
  const stems = Object.keys(manifest.exports ?? {}).map((name) => stemOf(manifest, name));
  const sources = stems.map((stem) => [stem, join(workspace, "src", `${stem}.ts`)] as const);
  rmSync(into, { recursive: true, force: true });
  const foreign = await bundle(root, { ...Object.fromEntries(sources), ...byAddress }, join(into, "dist"));
  for (const file of reachableDeclarations(join(source, "dist"), stems)) {
    mkdirSync(dirname(join(into, "dist", file)), { recursive: true });
    cpSync(join(source, "dist", file), join(into, "dist", file));
  }
  writeFileSync(join(into, NOTICES), noticesOf(root, foreign));
  cpSync(join(root, "LICENSE"), join(into, "LICENSE"));
  cpSync(join(source, "README.md"), join(into, "README.md"));
  writeManifest(
    shippedManifest(manifest, (file) => existsSync(join(into, file))),
    into,
  );
}

function writeManifest(manifest: Manifest, into: string): void {
  writeFileSync(join(into, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
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
  writeManifest(shippedManifest(readManifest(source), isThere), into);
}
