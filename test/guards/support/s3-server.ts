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
    const ids: string[] = [];
    let marker = "";
    for (;;) {
      const page = await this.#text(`${this.bucket}?versions&prefix=${encodeURIComponent(key)}${marker}`);
      ids.push(...[...page.matchAll(/<VersionId>([^<]+)<\/VersionId>/g)].map(([, id]) => id ?? ""));
      const next = /<NextVersionIdMarker>([^<]+)</.exec(page)?.[1];
      if (next === undefined || !page.includes("<IsTruncated>true<")) break;
      const keyMarker = /<NextKeyMarker>([^<]+)</.exec(page)?.[1] ?? key;
      marker = `&key-marker=${encodeURIComponent(keyMarker)}&version-id-marker=${encodeURIComponent(next)}`;
    }
    // Listed with the newest first.
    return Promise.all(
      ids.reverse().map((id) => this.#text(`${this.bucket}/${key}?versionId=${encodeURIComponent(id)}`)),
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
