import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import type { FileDescriptorProto } from "@bufbuild/protobuf/wkt";
import { FILE_DESCRIPTOR_SET, reflection } from "@lockstep/proto/etcd";
import { GrpcCode } from "../grpc/call.ts";
import type { GrpcService, StreamCall } from "../grpc/call.ts";

/** Both names of the protocol: the messages are the same. */
const NAMES = ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

interface File {
  readonly name: string;
  readonly imports: readonly string[];
  readonly bytes: Buffer;
}

/** The .proto files of this server, by name and by what they define. Built at the first question. */
class Descriptors {
  private readonly files = new Map<string, File>();
  private readonly bySymbol = new Map<string, string>();

  constructor() {
    for (const file of fromBinary(FileDescriptorSetSchema, FILE_DESCRIPTOR_SET).file) this.add(file);
  }

  /** The file and all that it imports, itself first. */
  closure(name: string): readonly Buffer[] | undefined {
    if (!this.files.has(name)) return undefined;
    const seen = new Set([name]);
    for (const next of seen) for (const imported of this.files.get(next)?.imports ?? []) seen.add(imported);
    return [...seen].map((one) => this.files.get(one)?.bytes ?? Buffer.alloc(0));
  }

  fileOf(symbol: string): string | undefined {
    return this.bySymbol.get(symbol.replace(/^\./, ""));
  }

  private add(file: FileDescriptorProto): void {
    const bytes = Buffer.from(toBinary(FileDescriptorProtoSchema, file));
    this.files.set(file.name, { name: file.name, imports: file.dependency, bytes });
    const inside = (scope: string, named: { readonly name: string }): string => {
      const full = scope === "" ? named.name : `${scope}.${named.name}`;
      this.bySymbol.set(full, file.name);
      return full;
    };
    const messages = (scope: string, list: FileDescriptorProto["messageType"]): void => {
      for (const message of list) {
        const full = inside(scope, message);
        for (const field of message.field) inside(full, field);
        for (const nested of message.enumType) inside(full, nested);
        messages(full, message.nestedType);
      }
    };
    messages(file.package, file.messageType);
    for (const one of file.enumType) inside(file.package, one);
    for (const service of file.service) {
      const full = inside(file.package, service);
      for (const method of service.method) inside(full, method);
    }
  }
}

/** gRPC server reflection: what tools ask to learn an API that they were not built with. */
export function reflectionServices(services: () => readonly string[]): readonly GrpcService[] {
  let descriptors: Descriptors | undefined;
  const serve = (call: StreamCall): void => {
    call.onMessage((message) => {
      let request: reflection.ServerReflectionRequest;
      try {
        request = reflection.ServerReflectionRequest.decode(message);
      } catch {
        call.fail({ code: GrpcCode.INVALID_ARGUMENT, details: "malformed request" });
        return;
      }
      descriptors ??= new Descriptors();
      const answer = {
        validHost: request.host,
        originalRequest: request,
        messageResponse: answerTo(request, descriptors, services()),
      };
      if (!call.write(reflection.ServerReflectionResponse.encode(answer).finish())) call.pause();
    });
    call.onDrain(() => call.resume());
    call.onHalfClose(() => call.end());
  };
  return NAMES.map((name) => ({
    name,
    methods: new Map([["ServerReflectionInfo", { kind: "stream", serve }]]),
  }));
}

type Answer = NonNullable<reflection.ServerReflectionResponse["messageResponse"]>;

function answerTo(
  { messageRequest }: reflection.ServerReflectionRequest,
  descriptors: Descriptors,
  services: readonly string[],
): Answer {
  switch (messageRequest?.$case) {
    case "listServices":
      return { $case: "listServicesResponse", value: { service: services.map((name) => ({ name })) } };
    case "fileByFilename":
      return fileAnswer(descriptors.closure(messageRequest.value));
    case "fileContainingSymbol":
      return fileAnswer(descriptors.closure(descriptors.fileOf(messageRequest.value) ?? ""));
    case "allExtensionNumbersOfType":
    case "fileContainingExtension":
    case undefined:
      return notFound("there are no extensions here");
  }
}

function fileAnswer(files: readonly Buffer[] | undefined): Answer {
  if (files === undefined) return notFound("not defined by this server");
  return { $case: "fileDescriptorResponse", value: { fileDescriptorProto: [...files] } };
}

function notFound(errorMessage: string): Answer {
  return { $case: "errorResponse", value: { errorCode: GrpcCode.NOT_FOUND, errorMessage } };
}
