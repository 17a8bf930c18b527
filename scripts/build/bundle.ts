// A workspace as one package that needs no other: what its entry points reach, packages included, in a few files. Fewer
// files also start faster: Node reads and resolves each one by itself.
import { build, type Metafile, type Plugin } from "esbuild";
import { readFileSync } from "node:fs";
import { join } from "node:path";

/** By the name of the file that it becomes (without .js): its source. */
export type Entries = Readonly<Record<string, string>>;

/**
 * Generated stubs bring gRPC's own client, which nobody here uses. Marked as free of effects, they go; should somebody
 * import another thing of that package, bundling fails.
 */
const WITHOUT_STUBS: Plugin = {
  name: "without-grpc-stubs",
  setup(stubs) {
    stubs.onLoad({ filter: /proto\/src\/gen\/.*\.ts$/ }, ({ path }) => ({
      contents: readFileSync(path, "utf8").replace(
        /= (?=makeGenericClientConstructor\()/g,
        "= /* @__PURE__ */ ",
      ),
      loader: "ts",
    }));
    stubs.onResolve({ filter: /^@grpc\/grpc-js$/ }, () => ({ path: "grpc-js", namespace: "stub" }));
    stubs.onLoad({ filter: /.*/, namespace: "stub" }, () => ({
      contents: "export function makeGenericClientConstructor() {}",
    }));
  },
};

/**
 * Writes `into/NAME.js` of each entry, and beside them what several of them share.
 * @returns the files of other packages that are in them, below `root`
 * @throws Error when something cannot be bundled
 */
export async function bundle(root: string, entries: Entries, into: string): Promise<readonly string[]> {
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: { ...entries },
    outdir: into,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    // The oldest Node that `engines` allows. Not minified: it would save no time, and users read stack traces.
    target: "node22.18",
    legalComments: "none",
    logLevel: "silent",
    metafile: true,
    plugins: [WITHOUT_STUBS],
  });
  refuseForeignImports(metafile);
  return foreignFiles(metafile);
}

function refuseForeignImports({ outputs }: Metafile): void {
  for (const [file, { imports }] of Object.entries(outputs)) {
    const foreign = imports.find(({ external, path }) => external === true && !path.startsWith("node:"));
    if (foreign !== undefined)
      throw new Error(`${file} imports ${foreign.path}, which is not in the package`);
  }
}

/** Of other packages, as far as something of them has been left in the bundles. */
function foreignFiles({ outputs }: Metafile): readonly string[] {
  const files = Object.values(outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(([file, { bytesInOutput }]) => (bytesInOutput > 0 ? [file] : [])),
  );
  return [...new Set(files)].filter((file) => file.includes("node_modules/")).sort();
}

/**
 * What the licences of bundled code ask to keep: the notices at the heads of its files, each once, by package.
 * @throws Error when a file has none: then somebody must look where the package has them
 */
export function noticesOf(root: string, files: readonly string[]): string {
  const byPackage = new Map<string, Set<string>>();
  for (const file of files) {
    const folder = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? file;
    const notice = /^(?:\/\/.*\n)+/.exec(readFileSync(join(root, file), "utf8"))?.[0];
    if (notice?.includes("Copyright") !== true)
      throw new Error(`${file} begins with no notice of its licence`);
    const notices = byPackage.get(folder) ?? new Set();
    byPackage.set(folder, notices.add(notice.replace(/^\/\/ ?/gm, "")));
  }
  const parts = [...byPackage].map(([folder, notices]) => {
    const { name, version, license } = JSON.parse(
      readFileSync(join(root, folder, "package.json"), "utf8"),
    ) as Readonly<Record<"name" | "version" | "license", string>>;
    return [`${name} ${version}, of which parts are in this package: ${license}\n`, ...notices].join("\n");
  });
  return parts.join("\n");
}
