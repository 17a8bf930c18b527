// Images: the bases, and those of the project, built without a registry and without a container daemon.
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { cached } from "./cache.ts";
import { run } from "./command.ts";
import { E2eError } from "./error.ts";
import { IMAGES, IMAGE_RUN_FOLDER, imageStoreOf, type Layout } from "./layout.ts";
import { unpackNpmPackage, type Programs } from "./programs.ts";
import { step, type Say } from "./progress.ts";

const SUITE = "bookworm";
const RUN_PACKAGES = "libc6,libstdc++6,libgcc-s1,ca-certificates,tzdata";
/** The package manager in the build base. */
const NPM_PACKAGE = "npm@11.19.1";
const BUILD_TIMEOUT_MS = 30 * 60_000;
/** Where the build stage finds the certificates that NODE_EXTRA_CA_CERTS names on this machine. */
const EXTRA_CA = "/run/extra-ca.pem";

/** An image as a docker archive. */
export interface Archive {
  /** The image's name inside the cluster. */
  readonly image: string;
  readonly file: string;
}

/** How an image of a Dockerfile is built. */
export interface BuildSpec {
  /** The name that it gets. */
  readonly image: string;
  /** Folder that COPY refers to. */
  readonly context: string;
  /** Default: `Dockerfile` in the context. */
  readonly dockerfile?: string;
  /** The stage to stop at. Absent: the last. */
  readonly target?: string;
  /** Beside BUILD_BASE, RUN_BASE and NODE_EXTRA_CA_CERTS, which are always given. */
  readonly buildArguments?: Readonly<Record<string, string>>;
}

/** The images of this repository's Dockerfile. */
export interface ProjectImages {
  readonly cell: Archive;
  readonly operator: Archive;
}

/** Builds images and keeps them as archives. */
export class ImageBuilder {
  readonly #say: Say;
  readonly #layout: Layout;
  readonly #programs: Programs;

  constructor(say: Say, layout: Layout, programs: Programs) {
    this.#say = say;
    this.#layout = layout;
    this.#programs = programs;
  }

  /** The sandbox image, which every node needs before its first pod. */
  async pause(): Promise<Archive> {
    const program = join(this.#programs.pause, "pause");
    const dockerfile = 'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n';
    const inputs = { program: this.#programs.pause, dockerfile };
    const folder = await cached(this.#layout.cache, "image-pause", inputs, async (target) => {
      const context = join(target, "context");
      mkdirSync(context);
      copyFileSync(program, join(context, "pause"));
      await this.#buildSimple(context, dockerfile, IMAGES.pause);
      await this.#push(IMAGES.pause, join(target, "image.tar"));
      rmSync(context, { recursive: true });
    });
    return { image: IMAGES.pause, file: join(folder, "image.tar") };
  }

  /** A small Debian with the libraries that Node and native add-ons need, and Node: no shell, no package manager. */
  async runBase(): Promise<Archive> {
    const dockerfile = `FROM scratch
ADD root.tar /
COPY node /usr/local/bin/node
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin NODE_VERSION=${nodeVersion(this.#layout)}
ENTRYPOINT ["/usr/local/bin/node"]
`;
    const args = ["--variant=extract", `--include=${RUN_PACKAGES}`];
    return this.#base("run-base", IMAGES.runBase, { dockerfile, args });
  }

  /** The same Debian with a shell, apt-get, Node and npm. */
  async buildBase(): Promise<Archive> {
    const dockerfile = `FROM scratch
ADD root.tar /
COPY node /usr/local/bin/node
COPY npm /usr/local/lib/node_modules/npm
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin NODE_VERSION=${nodeVersion(this.#layout)}
`;
    const args = ["--variant=minbase", "--include=ca-certificates"];
    return this.#base("build-base", IMAGES.buildBase, { dockerfile, args, withNpm: true });
  }

  async #base(
    name: string,
    image: string,
    how: { readonly dockerfile: string; readonly args: readonly string[]; readonly withNpm?: true },
  ): Promise<Archive> {
    const inputs = {
      dockerfile: how.dockerfile,
      root: how.args.join(" "),
      suite: SUITE,
      npm: how.withNpm === true ? NPM_PACKAGE : "",
      arch: process.arch,
    };
    const folder = await cached(this.#layout.cache, `image-${name}`, inputs, (target) =>
      step(this.#say, `building the base image ${image} (once)`, async () => {
        const context = join(target, "context");
        mkdirSync(context);
        await run("mmdebstrap", ["--quiet", ...how.args, SUITE, join(context, "root.tar")], {
          timeoutMs: BUILD_TIMEOUT_MS,
        });
        copyFileSync(nodeProgram(this.#layout), join(context, "node"));
        if (how.withNpm === true) await this.#copyNpm(context);
        await this.#buildSimple(context, how.dockerfile, image);
        await this.#push(image, join(target, "image.tar"));
        rmSync(context, { recursive: true });
      }),
    );
    const archive = { image, file: join(folder, "image.tar") };
    await this.#ensureStored(archive);
    return archive;
  }

  async #copyNpm(context: string): Promise<void> {
    await unpackNpmPackage(NPM_PACKAGE, context);
    cpSync(join(context, "package"), join(context, "npm"), { recursive: true });
    rmSync(join(context, "package"), { recursive: true });
  }

  /** The store of buildah may have been emptied by hand while our archives are still there. */
  async #ensureStored({ image, file }: Archive): Promise<void> {
    const { code } = await this.#buildah(
      ["inspect", "--type", "image", "--format", "{{.FromImageID}}", image],
      [0, 125],
    );
    if (code !== 0) await this.#buildah(["pull", "--quiet", `docker-archive:${file}`]);
  }

  async #buildSimple(context: string, dockerfile: string, image: string): Promise<void> {
    writeFileSync(join(context, "Dockerfile"), dockerfile);
    await this.#buildah(["build", "--quiet", "--isolation", "chroot", "--tag", image, context]);
  }

  /**
   * Builds one image of a Dockerfile and returns its archive. The layers are cached by buildah; what did not change is
   * not built again. The name's tag is yours to choose: one archive carries one name.
   */
  async build(spec: BuildSpec): Promise<Archive> {
    const [runBase, buildBase] = [await this.runBase(), await this.buildBase()];
    const extra = process.env["NODE_EXTRA_CA_CERTS"];
    const withExtra = extra !== undefined && existsSync(extra);
    const buildArguments = {
      BUILD_BASE: buildBase.image,
      RUN_BASE: runBase.image,
      ...(withExtra ? { NODE_EXTRA_CA_CERTS: EXTRA_CA } : {}),
      ...spec.buildArguments,
    };
    const args = [
      ...["build", "--quiet", "--layers", "--isolation", "chroot", "--network", "host", "--pull=never"],
      ...["--tag", spec.image, "--file", spec.dockerfile ?? join(spec.context, "Dockerfile")],
      ...(spec.target === undefined ? [] : ["--target", spec.target]),
      ...Object.entries(buildArguments).flatMap(([name, value]) => ["--build-arg", `${name}=${value}`]),
      ...(withExtra ? ["--volume", `${realpathSync(extra)}:${EXTRA_CA}:ro`] : []),
      spec.context,
    ];
    return step(this.#say, `building image ${spec.image}`, async () => {
      await this.#buildah(args);
      return this.#archive(spec.image);
    });
  }

  /** An archive is written once for each image and name: the file's name holds both. */
  async #archive(image: string): Promise<Archive> {
    const { stdout } = await this.#buildah([
      "inspect",
      "--type",
      "image",
      "--format",
      "{{.FromImageID}}",
      image,
    ]);
    const folder = await cached(
      this.#layout.cache,
      `image-${nameInFile(image)}`,
      { image, id: stdout },
      (target) => this.#push(image, join(target, "image.tar")),
    );
    return { image, file: join(folder, "image.tar") };
  }

  /** Builds the cell's and the operator's image from the Dockerfile at the root of the repository. */
  async project(): Promise<ProjectImages> {
    const context = this.#layout.repository;
    if (!existsSync(join(context, "Dockerfile")))
      throw new E2eError("missing", `there is no Dockerfile in ${context}`);
    const build = (target: string): Promise<Archive> =>
      this.build({ image: `e2e.lockstep.dev/${target}:dev`, context, target });
    // One after the other: they share their first stages, and the second finds them built.
    return { cell: await build("cell"), operator: await build("operator") };
  }

  async #push(image: string, file: string): Promise<void> {
    await this.#buildah(["push", "--quiet", image, `docker-archive:${file}:${image}`]);
  }

  async #buildah(
    args: readonly string[],
    allowedCodes: readonly number[] = [0],
  ): Promise<{ code: number; stdout: string }> {
    const store = [
      ...["--root", imageStoreOf(this.#layout), "--storage-driver", "overlay"],
      ...["--runroot", join(this.#layout.run, IMAGE_RUN_FOLDER)],
    ];
    return run("buildah", [...store, ...args], { timeoutMs: BUILD_TIMEOUT_MS, allowedCodes });
  }
}

/** The program of the npm package `node`, which the repository depends on. */
function nodeProgram(layout: Layout): string {
  return realpathSync(join(layout.repository, "node_modules/node/bin/node"));
}

function nodeVersion(layout: Layout): string {
  const file = join(layout.repository, "node_modules/node/package.json");
  return (JSON.parse(readFileSync(file, "utf8")) as { readonly version: string }).version;
}

/** Letters, digits and dashes for an image's name, different for different names. */
export function nameInFile(image: string): string {
  const hash = createHash("sha256").update(image).digest("hex").slice(0, 6);
  return `${image.replace(/[^a-z0-9]+/gi, "-")}-${hash}`;
}
