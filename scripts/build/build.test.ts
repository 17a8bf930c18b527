import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { bundle, noticesOf } from "./bundle.ts";
import { productionClosure, type Lockfile } from "./closure.ts";
import { compileText, compileWorkspace, filesBelow, isShipped } from "./compile.ts";
import { emitDeclarations, reachableDeclarations } from "./declarations.ts";
import { assembleImage, isNeeded, workspacesOf } from "./image.ts";
import { shippedManifest } from "./packages.ts";

const root = join(import.meta.dirname, "../..");
const scratch = mkdtempSync(join(tmpdir(), "lockstep-build-"));
after(() => rmSync(scratch, { recursive: true }));

describe("compiling", () => {
  it("relative imports name the compiled files, packages stay, types go", () => {
    const js = compileText(
      "x.ts",
      'import { a } from "./a.ts";\nimport type { B } from "./b.ts";\nimport c from "@lockstep/proto";\n' +
        'export const f = (b: B): unknown => [a, c, b, import("./d.ts")];\n',
    );
    assert.match(js, /^import { a } from "\.\/a\.js";\nimport c from "@lockstep\/proto";\n/);
    assert.match(js, /import\("\.\/d\.js"\)/);
    assert.doesNotMatch(js, /b\.ts|b\.js/);
  });

  it("what is no TypeScript is refused with the file's name", () => {
    assert.throws(() => compileText("cell/src/x.ts", "export const = 1;"), {
      message: /^cell\/src\/x\.ts: /,
    });
  });

  it("declarations have each member once, those named by the library's symbols too", () => {
    const folder = join(scratch, "declared");
    mkdirSync(join(folder, "w/src"), { recursive: true });
    symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
    cpSync(join(root, "tsconfig.json"), join(folder, "tsconfig.json"));
    writeFileSync(
      join(folder, "w/src/a.ts"),
      "export class A implements AsyncDisposable {\n  [Symbol.asyncDispose](): Promise<void> {\n    return Promise.resolve();\n  }\n}\n",
    );
    writeFileSync(
      join(folder, "w/src/b.ts"),
      'export { A } from "./a.ts";\nexport type C = import("./a.ts").A;\n',
    );
    emitDeclarations(folder, ["w"]);
    const text = readFileSync(join(folder, "w/dist/a.d.ts"), "utf8");
    assert.equal(text.match(/asyncDispose/g)?.length, 1, text);
    assert.deepEqual(readFileSync(join(folder, "w/dist/b.d.ts"), "utf8").match(/"[^"]*"/g), [
      '"./a.js"',
      '"./a.js"',
    ]);
  });

  it("tests and what serves them are not shipped", () => {
    assert.deepEqual(
      ["a.ts", "a.test.ts", "testing/a.ts", "b/testing/a.ts", "testdata/a.ts", "a.d.ts", "a.md"].filter(
        isShipped,
      ),
      ["a.ts"],
    );
  });

  it("only changed sources are compiled again, and what lost its source goes", () => {
    const source = join(scratch, "repository/w/src");
    mkdirSync(source, { recursive: true });
    writeFileSync(join(source, "a.ts"), "export const a = 1;\n");
    writeFileSync(join(source, "b.ts"), "export const b = 1;\n");
    const compile = (): number => compileWorkspace(join(scratch, "repository"), "w");
    assert.equal(compile(), 2);
    assert.equal(compile(), 0);
    writeFileSync(join(source, "a.ts"), "export const a = 2;\n");
    rmSync(join(source, "b.ts"));
    assert.equal(compile(), 1);
    assert.deepEqual(filesBelow(join(scratch, "repository/w/dist")), ["a.js"]);
  });

  it("a shipped file may not import one that is not", () => {
    const source = join(scratch, "bad/w/src");
    mkdirSync(join(source, "testing"), { recursive: true });
    writeFileSync(join(source, "a.ts"), 'import "./testing/b.ts";\n');
    writeFileSync(join(source, "testing/b.ts"), "export {};\n");
    assert.throws(() => compileWorkspace(join(scratch, "bad"), "w"), /a\.js imports \.\/testing\/b\.js/);
  });
});

describe("a package's manifest", () => {
  const manifest = {
    name: "@lockstep/x",
    version: "1.0.0",
    private: true,
    scripts: { build: "x" },
    devDependencies: { typescript: "1" },
    exports: { ".": "./src/index.ts", "./testing": "./src/testing/x.ts" },
  };

  it("exports compiled files, and of those only what is shipped", () => {
    assert.deepEqual(
      shippedManifest(manifest, (file) => file === "dist/index.js"),
      {
        name: "@lockstep/x",
        version: "1.0.0",
        exports: { ".": { types: "./dist/index.d.ts", default: "./dist/index.js" } },
        files: ["dist"],
      },
    );
  });

  it("an export from elsewhere is refused: it would be missing from the package", () => {
    assert.throws(
      () => shippedManifest({ ...manifest, exports: { ".": "./other.js" } }, () => true),
      /exports \./,
    );
  });
});

describe("a package that stands alone", () => {
  const root = join(scratch, "alone");
  const write = (file: string, text: string): void => {
    mkdirSync(join(root, file, ".."), { recursive: true });
    writeFileSync(join(root, file), text);
  };
  const notice = "// Copyright somebody\n//\n// Keep this.\n";
  write(
    "node_modules/dep/package.json",
    '{"name":"dep","version":"1.2.3","license":"MIT","main":"index.js"}',
  );
  write("node_modules/dep/index.js", `${notice}export const dep = 1;\n`);
  write("w/shared.ts", "export const shared: string = 'once';\n");
  write(
    "w/a.ts",
    'import { shared } from "./shared.ts";\nimport { dep } from "dep";\nexport const a = shared + dep;\n',
  );
  write("w/b.ts", 'import { shared } from "./shared.ts";\nconsole.log(shared);\n');

  it("has the packages that it uses inside, with their notices, and what its files share only once", async () => {
    const into = join(root, "dist");
    const foreign = await bundle(root, { "x/a": "w/a.ts", b: "w/b.ts" }, into);
    assert.deepEqual(foreign, ["node_modules/dep/index.js"]);
    assert.match(noticesOf(root, foreign), /^dep 1\.2\.3, .*MIT\n\nCopyright somebody\n\nKeep this\.\n$/);
    const files = filesBelow(into);
    assert.ok(files.includes("x/a.js") && files.includes("b.js"), files.join(" "));
    const texts = files.map((file) => readFileSync(join(into, file), "utf8"));
    assert.equal(texts.filter((text) => text.includes('"once"')).length, 1);
  });

  it("leaves generated gRPC stubs out, and anything else of that library is refused", async () => {
    write(
      "proto/src/gen/stub.ts",
      'import { makeGenericClientConstructor } from "@grpc/grpc-js";\nexport const Stub = makeGenericClientConstructor({}, "s");\nexport const one = 1;\n',
    );
    write("w/uses.ts", 'import { one } from "../proto/src/gen/stub.ts";\nconsole.log(one);\n');
    await bundle(root, { uses: "w/uses.ts" }, join(root, "stubless"));
    assert.doesNotMatch(readFileSync(join(root, "stubless/uses.js"), "utf8"), /Stub =|makeGeneric/);
    write("w/more.ts", 'import { Server } from "@grpc/grpc-js";\nconsole.log(Server);\n');
    await assert.rejects(bundle(root, { more: "w/more.ts" }, join(root, "more")), /No matching export/);
  });

  it("is refused when it bundles code without a notice", () => {
    write("node_modules/dep/bare.js", "export const bare = 1;\n");
    assert.throws(() => noticesOf(root, ["node_modules/dep/bare.js"]), /bare\.js begins with no notice/);
  });

  it("declares what its entry points reach, and nothing of another package", () => {
    const types = join(root, "types");
    write("types/index.d.ts", 'import type { A } from "./below/a.js";\nexport type { A };\n');
    write(
      "types/below/a.d.ts",
      'import type { X } from "node:stream";\nexport type A = X | import("../b.js").B;\n',
    );
    write("types/b.d.ts", "export type B = 1;\n");
    write("types/unreached.d.ts", 'import "wire";\n');
    assert.deepEqual(reachableDeclarations(types, ["index"]), ["b.d.ts", "below/a.d.ts", "index.d.ts"]);
    write("types/b.d.ts", 'export type { B } from "wire";\n');
    assert.throws(() => reachableDeclarations(types, ["index"]), /b\.d\.ts speaks of wire/);
  });
});

describe("what an image needs", () => {
  const lockfile: Lockfile = {
    packages: {
      w: { dependencies: { a: "1", "@types/a": "1", v: "1" } },
      v: { dependencies: { b: "2" } },
      other: { dependencies: { unused: "1" } },
      "node_modules/v": { link: true, resolved: "v" },
      "node_modules/a": {
        dependencies: { b: "1" },
        optionalDependencies: { absent: "1" },
        peerDependencies: { p: "1", q: "1" },
        peerDependenciesMeta: { q: { optional: true } },
      },
      "node_modules/a/node_modules/b": {},
      "node_modules/b": {},
      "node_modules/p": {},
      "node_modules/q": {},
      "node_modules/@types/a": {},
      "node_modules/unused": {},
    },
  };

  it("follows production dependencies as Node would find them", () => {
    assert.deepEqual(productionClosure(lockfile, ["w"], [/^@types\//]), {
      workspaces: ["v", "w"],
      packages: ["node_modules/a", "node_modules/a/node_modules/b", "node_modules/b", "node_modules/p"],
    });
  });

  it("what the lockfile lacks, or has below a workspace, is an error", () => {
    const lacking: Lockfile = { packages: { w: { dependencies: { a: "1" } } } };
    assert.throws(() => productionClosure(lacking, ["w"]), /has no a, which w needs/);
    const below: Lockfile = { packages: { ...lacking.packages, "w/node_modules/a": {} } };
    assert.throws(() => productionClosure(below, ["w"]), /below a workspace/);
  });

  it("licences stay; declarations, maps, documentation, native sources and other platforms' binaries go", () => {
    const here = `${process.platform}-${process.arch}`;
    const files = [
      "index.js",
      "a.json",
      "LICENSE.md",
      `prebuilds/${here}/x.node`,
      "lib/test/a.js",
      "lib/docs/a.js",
    ];
    const idle = [
      "a.d.ts",
      "a.js.map",
      "README.md",
      "test/a.js",
      "prebuilds/plan9-vax/x.node",
      "deps/a.c",
      "x.cc",
    ];
    assert.deepEqual(
      [...files, ...idle].filter((file) =>
        file.split("/").every((_, i, parts) => isNeeded(parts.slice(0, i + 1).join("/"))),
      ),
      files,
    );
  });
});

describe("the cell's image", () => {
  const folder = join(scratch, "cell");

  it("holds the program, its tools and nothing for development, and starts", () => {
    for (const workspace of workspacesOf(root, "cell")) compileWorkspace(root, workspace);
    assembleImage(root, "cell", folder);
    const files = filesBelow(folder);
    assert.deepEqual(
      files.filter((file) => /\.[cm]?ts$|\.map$|\.test\./.test(file)),
      [],
    );
    for (const name of ["typescript", "eslint", "prebuildify", "@types", "@kubernetes"]) {
      assert.ok(!existsSync(join(folder, "node_modules", name)), name);
    }
    assert.ok(files.includes("node_modules/@lockstep/gateway/openapi.yaml"));
    const run = (...args: readonly string[]): string =>
      spawnSync(process.execPath, args, { cwd: scratch, encoding: "utf8" }).stdout;
    assert.match(run(join(folder, "dist/main.js"), "member", "--help"), /^Usage: lockstep-cell member/);
    assert.match(run(join(folder, "bin/lockstep"), "--help"), /^Usage: lockstep /);
  });

  it("loads the native store", () => {
    const result = spawnSync(process.execPath, ["-e", 'require("@nxtedition/rocksdb")'], { cwd: folder });
    assert.equal(result.status, 0, result.stderr.toString());
  });

  it("commands name Node by the path that images have, because there need be no env", () => {
    assert.match(readFileSync(join(folder, "bin/lockstep"), "utf8"), /^#!\/usr\/local\/bin\/node\n/);
  });
});
