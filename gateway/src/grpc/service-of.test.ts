import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, it } from "node:test";
import type { ClientReadableStream, ServiceError } from "@grpc/grpc-js";
import { Client, credentials, status } from "@grpc/grpc-js";
import { RawConnection, frameOf } from "../testing/raw-grpc.ts";
import { GrpcCode } from "./call.ts";
import { GrpcError } from "./error.ts";
import type { RunningGrpcServer } from "./server.ts";
import { startGrpcServer } from "./server.ts";
import { serviceOf } from "./service-of.ts";

interface Numbers {
  readonly values: readonly number[];
}

function parse(bytes: Buffer): Numbers {
  return JSON.parse(bytes.toString()) as Numbers;
}

function print(value: Numbers): Buffer {
  return Buffer.from(JSON.stringify(value));
}

const codec = { requestDeserialize: parse, responseSerialize: print };
const DEFINITION = {
  sum: { path: "/test.Sums/Sum", requestStream: false, responseStream: false, ...codec },
  count: { path: "/test.Sums/Count", requestStream: false, responseStream: true, ...codec },
} as const;

class Scene implements AsyncDisposable {
  readonly server: RunningGrpcServer;
  readonly client: Client;

  private constructor(server: RunningGrpcServer) {
    this.server = server;
    this.client = new Client(`127.0.0.1:${server.address.port}`, credentials.createInsecure(), {
      "grpc.use_local_subchannel_pool": 1,
    });
  }

  static async open(
    counted: (cancelled: boolean, written: number) => void = () => undefined,
  ): Promise<Scene> {
    const service = serviceOf(DEFINITION, {
      sum: async ({ values }) => {
        await Promise.resolve();
        if (values.length === 0) {
          const metadata = { "lockstep-error-code": "empty" };
          throw new GrpcError({ code: GrpcCode.FAILED_PRECONDITION, details: "nothing to add", metadata });
        }
        if (values.some((value) => value < 0)) throw new RangeError("negative");
        return { values: [values.reduce((sum, value) => sum + value, 0)] };
      },
      count: async ({ values: [to = 0] }, stream) => {
        let written = 0;
        while (written < to && !stream.cancelled) {
          written += 1;
          await stream.write({ values: [written] });
        }
        counted(stream.cancelled, written);
        if (to < 0) throw new GrpcError({ code: GrpcCode.OUT_OF_RANGE, details: "below zero" });
      },
    });
    return new Scene(await startGrpcServer({ host: "127.0.0.1", port: 0, services: [service] }));
  }

  sum(values: readonly number[]): Promise<Numbers> {
    return new Promise((resolve, reject) => {
      const done = (error: ServiceError | null, answer?: Numbers): void => {
        if (error === null && answer !== undefined) resolve(answer);
        else reject(error ?? new Error("no answer"));
      };
      this.client.makeUnaryRequest(DEFINITION.sum.path, print, parse, { values }, done);
    });
  }

  count(to: number): ClientReadableStream<Numbers> {
    const stream = this.client.makeServerStreamRequest(DEFINITION.count.path, print, parse, { values: [to] });
    stream.on("error", () => undefined);
    return stream;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.client.close();
    await this.server.close(100);
  }
}

describe("a service that generated code describes", { timeout: 20_000 }, () => {
  it("answers what its handlers return, refuses what they throw", async () => {
    await using scene = await Scene.open();
    assert.deepEqual(await scene.sum([1, 2, 3]), { values: [6] });
    await assert.rejects(scene.sum([]), (error: ServiceError) => {
      assert.deepEqual([error.code, error.details], [status.FAILED_PRECONDITION, "nothing to add"]);
      assert.deepEqual(error.metadata.get("lockstep-error-code"), ["empty"]);
      return true;
    });
    await assert.rejects(scene.sum([-1]), { code: status.INTERNAL, details: "negative" });
  });

  it("streams what they write, and ends as they end", async () => {
    await using scene = await Scene.open();
    const came = (await scene.count(2_000).toArray()) as Numbers[];
    assert.deepEqual(
      came.map(({ values }) => values[0]),
      Array.from({ length: 2_000 }, (_, i) => i + 1),
    );
    const refused = scene.count(-1);
    refused.resume();
    const [error] = (await once(refused, "error")) as [ServiceError];
    assert.deepEqual([error.code, error.details], [status.OUT_OF_RANGE, "below zero"]);
  });

  it("lets a stream's handler go when the client goes, even while it waits for room", async () => {
    const counted = Promise.withResolvers<{ readonly cancelled: boolean; readonly written: number }>();
    await using scene = await Scene.open((cancelled, written) => counted.resolve({ cancelled, written }));
    const stream = scene.count(1_000_000_000);
    await once(stream, "readable");
    stream.cancel();
    const { cancelled, written } = await counted.promise;
    assert.equal(cancelled, true);
    assert.ok(written < 1_000_000_000);
  });

  it("refuses requests that cannot be read, are missing, or too many", async () => {
    await using scene = await Scene.open();
    await using raw = await RawConnection.open(scene.server.address.port);
    const one = frameOf(print({ values: [1] }));
    for (const { path } of Object.values(DEFINITION)) {
      for (const [body, code] of [
        [[frameOf("{")], GrpcCode.INVALID_ARGUMENT],
        [[], GrpcCode.UNIMPLEMENTED],
        [[one, one], GrpcCode.UNIMPLEMENTED],
      ] as const) {
        const { trailers } = await raw.call(path, body);
        assert.equal(trailers["grpc-status"], String(code), path);
      }
    }
  });
});
