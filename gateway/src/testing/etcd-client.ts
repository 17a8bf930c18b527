import { Metadata, credentials } from "@grpc/grpc-js";
import type { Client, ClientDuplexStream, ServiceError } from "@grpc/grpc-js";
import { etcd, etcdElection, etcdLock, health, reflection } from "@lockstep/proto/etcd";
import type { EtcdDoor, EtcdDoorOptions } from "../etcd/door.ts";
import { createEtcdDoor } from "../etcd/door.ts";
import { healthService } from "../etcd/health.ts";
import { reflectionServices } from "../etcd/reflection.ts";
import type { RunningGrpcServer } from "../grpc/server.ts";
import { startGrpcServer } from "../grpc/server.ts";
import { MemoryCoordinator } from "./memory-coordinator.ts";
import type { MemoryCoordinatorOptions } from "./memory-coordinator.ts";

/** The etcd door over a coordinator in memory, with a client for each of its services. */
export interface EtcdBench {
  readonly coordinator: MemoryCoordinator;
  readonly door: EtcdDoor;
  readonly server: RunningGrpcServer;
  readonly address: string;
  readonly clients: EtcdClients;
  close(): Promise<void>;
}

export interface EtcdClients {
  readonly kv: etcd.KVClient;
  readonly watch: etcd.WatchClient;
  readonly lease: etcd.LeaseClient;
  readonly cluster: etcd.ClusterClient;
  readonly maintenance: etcd.MaintenanceClient;
  readonly auth: etcd.AuthClient;
  readonly lock: etcdLock.LockClient;
  readonly election: etcdElection.ElectionClient;
  readonly health: health.HealthClient;
  readonly reflection: reflection.ServerReflectionClient;
}

export async function openEtcdBench(
  options: Partial<EtcdDoorOptions> = {},
  coordinatorOptions: MemoryCoordinatorOptions = {},
): Promise<EtcdBench> {
  const coordinator = new MemoryCoordinator(coordinatorOptions);
  const door = createEtcdDoor({ coordinator, ...options });
  const names = door.services.map(({ name }) => name);
  const server = await startGrpcServer({
    host: "127.0.0.1",
    port: 0,
    services: [
      ...door.services,
      healthService(coordinator, (name) => names.includes(name)),
      ...reflectionServices(() => names),
    ],
  });
  const address = `127.0.0.1:${server.address.port}`;
  const plain = credentials.createInsecure();
  const large = { "grpc.max_receive_message_length": -1 };
  const clients: EtcdClients = {
    kv: new etcd.KVClient(address, plain, large),
    watch: new etcd.WatchClient(address, plain, large),
    lease: new etcd.LeaseClient(address, plain),
    cluster: new etcd.ClusterClient(address, plain),
    maintenance: new etcd.MaintenanceClient(address, plain),
    auth: new etcd.AuthClient(address, plain),
    lock: new etcdLock.LockClient(address, plain),
    election: new etcdElection.ElectionClient(address, plain),
    health: new health.HealthClient(address, plain),
    reflection: new reflection.ServerReflectionClient(address, plain),
  };
  return {
    coordinator,
    door,
    server,
    address,
    clients,
    close: async () => {
      for (const client of Object.values(clients)) (client as { close(): void }).close();
      door.close();
      await server.close(0);
    },
  };
}

export function bytes(text: string): Buffer {
  return Buffer.from(text, "latin1");
}

/** A request with protobuf's defaults where nothing is said. */
export function range(key: string, more: Partial<etcd.RangeRequest> = {}): etcd.RangeRequest {
  return { ...etcd.RangeRequest.decode(new Uint8Array(0)), key: bytes(key), ...more };
}

export function put(key: string, value: string, more: Partial<etcd.PutRequest> = {}): etcd.PutRequest {
  const request = etcd.PutRequest.decode(new Uint8Array(0));
  return { ...request, key: bytes(key), value: bytes(value), ...more };
}

export function remove(key: string, more: Partial<etcd.DeleteRangeRequest> = {}): etcd.DeleteRangeRequest {
  return { ...etcd.DeleteRangeRequest.decode(new Uint8Array(0)), key: bytes(key), ...more };
}

/** Operations of a transaction. */
export const op = {
  range: (request: etcd.RangeRequest): etcd.RequestOp => ({
    request: { $case: "requestRange", value: request },
  }),
  put: (request: etcd.PutRequest): etcd.RequestOp => ({ request: { $case: "requestPut", value: request } }),
  remove: (request: etcd.DeleteRangeRequest): etcd.RequestOp => ({
    request: { $case: "requestDeleteRange", value: request },
  }),
  txn: (request: Partial<etcd.TxnRequest>): etcd.RequestOp => ({
    request: { $case: "requestTxn", value: { compare: [], success: [], failure: [], ...request } },
  }),
} as const;

/** A method as generated code describes it. */
interface Method<Q, A> {
  readonly path: string;
  readonly requestSerialize: (request: Q) => Buffer;
  readonly responseDeserialize: (bytes: Buffer) => A;
}

/** One unary call. Rejects with the status as its error. */
export function ask<Q, A>(
  client: Client,
  method: Method<Q, A>,
  request: Q,
  metadata: Readonly<Record<string, string>> = {},
): Promise<A> {
  return new Promise((resolve, reject) => {
    const sent = new Metadata();
    for (const [name, value] of Object.entries(metadata)) sent.set(name, value);
    const { path, requestSerialize, responseDeserialize } = method;
    client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, sent, (error, answer) => {
      if (error !== null) reject(error);
      else if (answer !== undefined) resolve(answer);
    });
  });
}

/** How a call was refused: its code and text. */
export async function refusal(call: Promise<unknown>): Promise<{ code: number; details: string }> {
  try {
    await call;
  } catch (error) {
    const { code, details } = error as ServiceError;
    return { code, details };
  }
  throw new Error("the call was not refused");
}

/** One watch stream whose answers are taken one after the other. */
export class WatchTap {
  readonly stream: ClientDuplexStream<etcd.WatchRequest, etcd.WatchResponse>;
  #answers: etcd.WatchResponse[] = [];
  #waiting: ((answer: etcd.WatchResponse) => void)[] = [];
  /** Resolves with the stream's end. */
  readonly ended: Promise<{ code: number; details: string }>;

  constructor(client: etcd.WatchClient, metadata: Readonly<Record<string, string>> = {}) {
    const sent = new Metadata();
    for (const [name, value] of Object.entries(metadata)) sent.set(name, value);
    this.stream = client.watch(sent);
    this.stream.on("data", (answer: etcd.WatchResponse) => {
      const waiting = this.#waiting.shift();
      if (waiting === undefined) this.#answers.push(answer);
      else waiting(answer);
    });
    this.stream.on("error", () => undefined);
    this.ended = new Promise((resolve) => this.stream.on("status", resolve));
  }

  create(key: string, more: Partial<etcd.WatchCreateRequest> = {}): void {
    const value = { ...etcd.WatchCreateRequest.decode(new Uint8Array(0)), key: bytes(key), ...more };
    this.stream.write({ requestUnion: { $case: "createRequest", value } });
  }

  cancel(watchId: number): void {
    this.stream.write({ requestUnion: { $case: "cancelRequest", value: { watchId } } });
  }

  progress(): void {
    this.stream.write({ requestUnion: { $case: "progressRequest", value: {} } });
  }

  next(): Promise<etcd.WatchResponse> {
    const answer = this.#answers.shift();
    if (answer !== undefined) return Promise.resolve(answer);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** What has come and was not taken. */
  get untaken(): readonly etcd.WatchResponse[] {
    return this.#answers;
  }
}
