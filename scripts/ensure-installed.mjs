// Runs before every npm script on whatever Node the machine has (>= 20): installs the dependencies,
// Node 24 among them, when they are missing or older than the lockfile. What follows in the npm script names
// node_modules/.bin/node by its path: a shell remembers where it found plain `node` before the installation.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createHash } from "node:crypto";

const root = new URL("..", import.meta.url);
const stampFile = new URL("node_modules/.lockstep-installed", root);
const lockHash = createHash("sha256")
  .update(readFileSync(new URL("package-lock.json", root)))
  .digest("hex");

// npm runs this after every install in this folder (`postinstall`), so that no script installs again.
if (process.argv.includes("--mark")) {
  if (existsSync(new URL("node_modules", root))) writeFileSync(stampFile, lockHash);
  process.exit(0);
}

const installed = existsSync(stampFile) && readFileSync(stampFile, "utf8") === lockHash;
if (!installed) {
  process.stderr.write("Installing dependencies (once; about a minute) ...\n");
  const result = spawnSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: root,
    stdio: ["ignore", 2, 2],
  });
  if (result.status !== 0) {
    process.stderr.write(
      "npm ci failed. Check that the npm registry can be reached, then run the command again.\n",
    );
    process.exit(result.status ?? 1);
  }
  writeFileSync(stampFile, lockHash);
}
