import assert from "node:assert/strict";
import { build } from "esbuild";
import { statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import { run } from "../support/run.ts";
import { oldNode } from "./old-node.ts";
import { Project, tool } from "./project.ts";

/** `engines` in client/package.json. */
const OLDEST_NODE = "22.18.0";
/** Packed, 116 kB now: a dependency that slips in shows here. */
const PACKED_BYTES_MAX = 150_000;

const EXPECTED = [
  "watched put /orders/7 paid",
  "locked, with tokens that grow: true",
  "also there: PostgresGuard RedisGuard S3Guard true",
  "closed: closed",
  "",
].join("\n");

describe("@lockstep/client, packed and installed in an empty project", { timeout: 240_000 }, () => {
  let project: Project;
  let cell: TestCell;

  before(async () => {
    project = await Project.withClient();
    cell = await TestCell.start(1);
  });
  after(async () => {
    await cell.stop();
    project.remove();
  });

  it("brings no other package, and is small", () => {
    assert.deepEqual(project.installed, ["@lockstep/client"]);
    assert.ok(statSync(project.tarball).size < PACKED_BYTES_MAX, String(statSync(project.tarball).size));
  });

  it("resolves, with its types, from every entry point that the manifest names", async () => {
    await tool("attw", [project.tarball, "--profile", "esm-only", "--no-color"]);
    await tool("publint", [project.tarball, "--strict"]);
  });

  it("type-checks, its declarations too, under both ways to resolve modules", async () => {
    project.addNodeTypes();
    await project.checkTypes({ module: "nodenext", moduleResolution: "nodenext" });
    await project.checkTypes({ module: "preserve", moduleResolution: "bundler" });
  });

  it(`connects, locks, guards and watches on Node ${process.version}`, async () => {
    assert.equal(await project.start(process.execPath, cell.endpoints), EXPECTED);
  });

  for (const format of ["esm", "cjs"] as const)
    it(`tells a program that has bundled it (${format}) what to do, at once`, async () => {
      const program = `
        import { connect } from "@lockstep/client";
        connect({ endpoints: ["127.0.0.1:9"], connectTimeoutMs: 60_000 }).catch(({ code, message }) => {
          console.log(code, message);
          process.exit();
        });
      `;
      const bundled = join(project.folder, `bundled.${format === "esm" ? "mjs" : "cjs"}`);
      await build({
        stdin: { contents: program, resolveDir: project.folder },
        ...{ bundle: true, platform: "node", format, outfile: bundled, logLevel: "silent" },
      });
      const { code, out, err } = await run(process.execPath, [bundled]);
      assert.equal(code, 0, err);
      assert.match(out, /^unavailable .*leave @lockstep\/client out of the bundle, or .*worker: false/);
    });

  it(`does so on Node ${OLDEST_NODE}, the oldest that it allows`, async () => {
    assert.equal(await project.start(await oldNode(OLDEST_NODE), cell.endpoints), EXPECTED);
  });
});
