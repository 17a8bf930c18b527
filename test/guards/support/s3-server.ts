import { AwsClient } from "aws4fetch";
import type { S3Fetch } from "@lockstep/client/guards/s3";
import { s3Program, type Found } from "./programs.ts";
import { ServerProcess, serverFolder } from "./server-process.ts";

/** An S3 server of its own (gofakes3, in memory) with one versioned bucket. */
export class S3Server {
  /** The bucket's address. */
  readonly bucket: string;
  /** Signs and sends, and repeats nothing. */
  readonly fetch: S3Fetch;
  readonly #process: ServerProcess;
  readonly #aws: AwsClient;

  private constructor(server: ServerProcess) {
    this.#process = server;
    this.bucket = server.readyLine;
    this.#aws = new AwsClient({
      accessKeyId: "test",
      secretAccessKey: "test",
      service: "s3",
      region: "us-east-1",
      retries: 0,
    });
    this.fetch = (url, request) => this.#aws.fetch(url, request);
  }

  static find(): Promise<Found> {
    return s3Program();
  }

  /** @param program its path */
  static async start(program: string): Promise<S3Server> {
    const folder = serverFolder("s3");
    return new S3Server(await ServerProcess.start({ command: program, args: [], ready: /^http:/, folder }));
  }

  /** The bodies of all versions of an object, in the order in which the server accepted them. */
  async versions(key: string): Promise<string[]> {
    const found: { readonly id: string; readonly latest: boolean }[] = [];
    let marker = "";
    for (;;) {
      const page = await this.#text(`${this.bucket}?versions&prefix=${encodeURIComponent(key)}${marker}`);
      for (const [, version = ""] of page.matchAll(/<Version>(.*?)<\/Version>/gs))
        found.push({
          id: element(version, "VersionId") ?? "",
          latest: element(version, "IsLatest") === "true",
        });
      const next = element(page, "NextVersionIdMarker");
      if (next === undefined || element(page, "IsTruncated") !== "true") break;
      const keyMarker = element(page, "NextKeyMarker") ?? key;
      marker = `&key-marker=${encodeURIComponent(keyMarker)}&version-id-marker=${encodeURIComponent(next)}`;
    }
    // S3 lists the newest first, this server last.
    if (found[0]?.latest === true) found.reverse();
    if (found.at(-1)?.latest !== true) throw new Error(`the versions of ${key} are in no order`);
    return Promise.all(
      found.map(({ id }) => this.#text(`${this.bucket}/${key}?versionId=${encodeURIComponent(id)}`)),
    );
  }

  async #text(url: string): Promise<string> {
    const response = await this.#aws.fetch(url);
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${url} answered ${String(response.status)}: ${text}`);
    return text;
  }

  stop(): Promise<void> {
    return this.#process.stop();
  }
}

function element(xml: string, name: string): string | undefined {
  return new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml)?.[1];
}
