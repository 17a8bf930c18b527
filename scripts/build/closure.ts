// Which installed packages a workspace needs in production, by the lockfile.

export interface LockedPackage {
  readonly link?: boolean;
  /** Of a link: the workspace's folder. */
  readonly resolved?: string;
  readonly optional?: boolean;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>;
}

export interface Lockfile {
  readonly packages: Readonly<Record<string, LockedPackage>>;
}

export interface Closure {
  /** Folders of workspaces, those that were asked for among them. */
  readonly workspaces: readonly string[];
  /** Paths of installed packages from the root: node_modules/NAME, or deeper. */
  readonly packages: readonly string[];
}

/**
 * Everything that `workspaces` reach through production dependencies, sorted. Names that match `without` are not
 * followed. Throws when the lockfile lacks one, or when npm put one below a workspace, where an image has no place for
 * it (two versions of one package in the workspaces themselves: make them one).
 */
export function productionClosure(
  lockfile: Lockfile,
  workspaces: readonly string[],
  without: readonly RegExp[] = [],
): Closure {
  const seen = new Set<string>();
  const waiting = [...workspaces];
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    const locked = lockfile.packages[path];
    if (locked === undefined) throw new Error(`package-lock.json has no ${path}`);
    if (locked.link === true) {
      waiting.push(locked.resolved ?? "");
      continue;
    }
    if (seen.has(path)) continue;
    if (path.includes("/node_modules/") && !path.startsWith("node_modules/")) {
      throw new Error(`${path} is installed below a workspace: let the workspaces agree on one version`);
    }
    seen.add(path);
    for (const { name, optional } of dependenciesOf(locked)) {
      if (without.some((pattern) => pattern.test(name))) continue;
      const found = resolvePackage(lockfile, path, name);
      if (found !== undefined) waiting.push(found);
      else if (!optional) throw new Error(`package-lock.json has no ${name}, which ${path} needs`);
    }
  }
  const all = [...seen].sort();
  return {
    workspaces: all.filter((path) => !path.startsWith("node_modules/")),
    packages: all.filter((path) => path.startsWith("node_modules/")),
  };
}

function dependenciesOf(locked: LockedPackage): { readonly name: string; readonly optional: boolean }[] {
  const peers = Object.keys(locked.peerDependencies ?? {}).map((name) => ({
    name,
    optional: locked.peerDependenciesMeta?.[name]?.optional === true,
  }));
  const named = (names: Readonly<Record<string, string>> | undefined, optional: boolean): typeof peers =>
    Object.keys(names ?? {}).map((name) => ({ name, optional }));
  return [
    ...named(locked.dependencies, false),
    ...named(locked.optionalDependencies, true),
    // An optional peer is somebody's choice: whoever wants it depends on it.
    ...peers.filter(({ optional }) => !optional),
  ];
}

/** As Node looks a package up: beside the package that asks, then in each folder above it. */
function resolvePackage(lockfile: Lockfile, from: string, name: string): string | undefined {
  for (let folder = from; ; folder = parentOf(folder)) {
    const candidate = folder === "" ? `node_modules/${name}` : `${folder}/node_modules/${name}`;
    if (lockfile.packages[candidate] !== undefined) return candidate;
    if (folder === "") return undefined;
  }
}

/** The package that `path` is installed below; "" for the root. */
function parentOf(path: string): string {
  const cut = path.lastIndexOf("/node_modules/");
  return cut === -1 ? "" : path.slice(0, cut);
}
