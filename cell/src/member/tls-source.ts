import { readFile, stat } from "node:fs/promises";
import type { admin } from "@lockstep/proto";
import type { Log } from "../replica/environment.ts";
import { TLS_FILE_BYTES_MAX, TlsMaterialError, checkTlsMaterial } from "./tls-material.ts";
import type { TlsFileContents, TlsMaterial } from "./tls-material.ts";

/** Where a member's certificates are, and whom they are to name. */
export interface MemberTlsOptions {
  /** PEM files: the member's certificate (with intermediates behind it), its key, the authorities it trusts. */
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
  /** The name of the cell in certificates: not its cell id, which it draws itself. */
  readonly cellUid: string;
}

export interface TlsSourceParts {
  readonly options: MemberTlsOptions;
  readonly memberName: string;
  readonly log: Log;
  readonly wallMs: () => number;
  readonly every: (intervalMs: number, task: () => void) => () => void;
  /** Default: from the real file system, at most {@link TLS_FILE_BYTES_MAX}. */
  readonly readFile?: (path: string) => Promise<Buffer>;
}

/** What became of new files; `same`: there were none. */
export type ReloadResult = "same" | "taken" | "refused";

/** The files are looked at this often. */
export const TLS_POLL_MS = 3_000;
/** A mount that is swapped while its files are read one after the other is read again. */
const READ_TRIES_MAX = 3;

/**
 * The member's certificates, as they stand in their files now. Files that change are taken as a whole or refused as a
 * whole; after a refusal the ones before go on, and the files are tried again at every look.
 *
 * The contents are compared, not times or inodes: a Kubernetes mount is a chain of symbolic links that is swapped at
 * once, and says nothing to those who watch a path behind it.
 */
export class TlsSource {
  readonly #parts: TlsSourceParts;
  readonly #listeners = new Set<(material: TlsMaterial) => void>();
  #contents: TlsFileContents;
  #current: TlsMaterial;
  #reloadError = "";
  #stop: (() => void) | undefined;
  #looking: Promise<ReloadResult> | undefined;
  /** Told of every set of new files; for metrics. */
  onReload: (result: Exclude<ReloadResult, "same">) => void = () => undefined;

  private constructor(parts: TlsSourceParts, contents: TlsFileContents, current: TlsMaterial) {
    this.#parts = parts;
    this.#contents = contents;
    this.#current = current;
  }

  /**
   * Reads and checks the files, and looks at them again from now on.
   * @throws TlsMaterialError
   */
  static async open(parts: TlsSourceParts): Promise<TlsSource> {
    const contents = await readAll(parts);
    const source = new TlsSource(parts, contents, check(parts, contents, undefined));
    source.#stop = parts.every(TLS_POLL_MS, () => void source.reload());
    return source;
  }

  get current(): TlsMaterial {
    return this.#current;
  }

  /**
   * Tells of certificates that are taken from now on.
   * @param has what the listener uses already: it is told at once when others were taken since
   */
  listen(has: TlsMaterial, listener: (material: TlsMaterial) => void): void {
    this.#listeners.add(listener);
    if (has !== this.#current) listener(this.#current);
  }

  /** Looks at the files now. Never rejects: what is wrong with them is logged and told by {@link status}. */
  reload(): Promise<ReloadResult> {
    this.#looking ??= this.#look().finally(() => (this.#looking = undefined));
    return this.#looking;
  }

  status(): admin.TlsStatus {
    const { bundleHash, leafHash, leafNotAfterMs } = this.#current;
    return { bundleHash, leafHash, leafNotAfterMs, reloadError: this.#reloadError };
  }

  close(): void {
    this.#stop?.();
    this.#listeners.clear();
  }

  async #look(): Promise<ReloadResult> {
    const { log } = this.#parts;
    try {
      const contents = await readAll(this.#parts);
      if (sameContents(contents, this.#contents)) {
        if (this.#reloadError !== "") log.info("the certificate files are again those that are in use");
        this.#reloadError = "";
        return "same";
      }
      const material = check(this.#parts, contents, this.#current);
      this.#take(contents, material);
      return "taken";
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (reason === this.#reloadError) return "refused";
      this.#reloadError = reason;
      log.error("refused the certificate files; the certificates before go on", { reason });
      this.onReload("refused");
      return "refused";
    }
  }

  #take(contents: TlsFileContents, material: TlsMaterial): void {
    this.#contents = contents;
    this.#current = material;
    this.#reloadError = "";
    for (const listener of this.#listeners) listener(material);
    const { bundleHash, leafHash, leafNotAfterMs } = material;
    this.#parts.log.info("new certificates, for connections to come", {
      ...{ bundleHash, leafHash },
      leafNotAfter: new Date(leafNotAfterMs).toISOString(),
    });
    this.onReload("taken");
  }
}

function check(
  { options, memberName, wallMs }: TlsSourceParts,
  contents: TlsFileContents,
  before: TlsMaterial | undefined,
): TlsMaterial {
  return checkTlsMaterial(contents, {
    ...{ cellUid: options.cellUid, memberName, nowMs: wallMs() },
    ...(before === undefined ? {} : { trustedBefore: before.authorities }),
  });
}

/** All three as they stood at one moment. */
async function readAll(parts: TlsSourceParts): Promise<TlsFileContents> {
  let before = await readOnce(parts);
  for (let tries = 0; tries < READ_TRIES_MAX; tries += 1) {
    const again = await readOnce(parts);
    if (sameContents(before, again)) return again;
    before = again;
  }
  throw new TlsMaterialError("the certificate files keep changing while they are read");
}

async function readOnce({ options, readFile: read = readBounded }: TlsSourceParts): Promise<TlsFileContents> {
  const named = async (flag: string, path: string): Promise<Buffer> => {
    try {
      return await read(path);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new TlsMaterialError(`cannot read ${path} (${flag}): ${reason}`);
    }
  };
  return {
    cert: await named("--tls-cert", options.cert),
    key: await named("--tls-key", options.key),
    ca: await named("--tls-ca", options.ca),
  };
}

async function readBounded(path: string): Promise<Buffer> {
  const { size } = await stat(path);
  if (size > TLS_FILE_BYTES_MAX) throw new Error(`larger than ${String(TLS_FILE_BYTES_MAX)} bytes`);
  return readFile(path);
}

function sameContents(one: TlsFileContents, other: TlsFileContents): boolean {
  return one.cert.equals(other.cert) && one.key.equals(other.key) && one.ca.equals(other.ca);
}
