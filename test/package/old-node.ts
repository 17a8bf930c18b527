import { arch, platform } from "node:process";
import { join } from "node:path";
import { cached } from "../../e2e/src/cache.ts";
import { layoutOf } from "../../e2e/src/layout.ts";
import { run } from "../support/run.ts";

const INSTALL_MS_MAX = 300_000;

/**
 * The oldest Node that `engines` allows, from the npm registry, kept in the cache.
 * @throws Error when the registry has not given it
 */
export async function oldNode(version: string): Promise<string> {
  // What the npm package `node` chooses from.
  const name = `node-${platform}-${arch}`;
  const inputs = { package: name, version };
  const folder = await cached(
    layoutOf(process.env, import.meta.dirname).cache,
    "node",
    inputs,
    async (made) => {
      const flags = ["--no-save", "--no-audit", "--no-fund", "--prefix", made];
      const options = { cwd: made, timeoutMs: INSTALL_MS_MAX };
      const { code, err } = await run("npm", ["install", ...flags, `${name}@${version}`], options);
      if (code === 0) return;
      throw new Error(
        `Node ${version} is needed here and comes from the npm registry, which has not given it: ` +
          `npm install ${name}@${version} ended with ${String(code)}\n${err}`,
      );
    },
  );
  return join(folder, "node_modules", name, "bin/node");
}
