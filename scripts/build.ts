// `npm run build`: compiles the workspaces to JavaScript (X/src to X/dist). Inside the repository Node runs the
// TypeScript sources; the compiled form is for what leaves it, because Node strips no types below node_modules.
//
//   node scripts/build.ts                         the dist/ of every workspace that ships
//   node scripts/build.ts --packages DIR          also DIR/NAME for each of them, ready for `npm publish`
//   node scripts/build.ts --image cell|operator --into DIR
//                                                 only what that image runs, with its production dependencies, in DIR
//
// It does not check types: `npm run check` does.
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { compileWorkspace } from "./build/compile.ts";
import { emitDeclarations } from "./build/declarations.ts";
import { assembleImage, workspacesOf, type ImageName } from "./build/image.ts";
import { SHIPPED, stagePublished } from "./build/packages.ts";

const root = join(import.meta.dirname, "..");
const { values } = parseArgs({
  options: { packages: { type: "string" }, image: { type: "string" }, into: { type: "string" } },
});
const isImage = (name: string): name is ImageName => name === "cell" || name === "operator";

function compile(workspaces: readonly string[]): void {
  const started = performance.now();
  const files = workspaces.reduce((sum, workspace) => sum + compileWorkspace(root, workspace), 0);
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`compiled ${String(files)} files of ${workspaces.join(", ")} (${seconds} s)`);
}

if (values.image !== undefined) {
  if (!isImage(values.image) || values.into === undefined) {
    console.error("--image is cell or operator, and goes with --into DIR");
    process.exit(1);
  }
  compile(workspacesOf(root, values.image));
  const into = resolve(values.into);
  const { bytes, packages } = assembleImage(root, values.image, into);
  console.log(
    `${into}: ${(bytes / 1e6).toFixed(1)} MB, ${String(packages)} packages besides the program itself`,
  );
} else {
  compile(SHIPPED);
  emitDeclarations(root, SHIPPED);
  for (const workspace of values.packages === undefined ? [] : SHIPPED) {
    await stagePublished(root, workspace, resolve(values.packages ?? "", workspace));
  }
}
