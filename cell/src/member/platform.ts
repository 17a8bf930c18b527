import { randomUUID } from "node:crypto";
import { Metadata, credentials } from "@grpc/grpc-js";
import type { ServiceError } from "@grpc/grpc-js";
import { admin } from "@lockstep/proto";
import { openGenerations, openRocksStore } from "../store/index.ts";
import type { Generations } from "../store/index.ts";
import { createTransport } from "../transport/index.ts";
import type { TransportOptions } from "../transport/index.ts";
import type { Transport } from "../transport/types.ts";
import { createNodeDisk } from "../wal/index.ts";
import type { Disk } from "../wal/types.ts";
import { JOIN_TRY_MS_MAX, JoinFailure } from "./join.ts";
import type { AskToJoin } from "./join.ts";

/**
 * What a member stands on besides its {@link Environment}: disk, store, wire and the drawing of identities. One
 * implementation is the real machine; the simulator and the torture bring their own.
 */
export interface Platform {
  readonly disk: Disk;
  /**
   * Opens (or creates) the store's generations in a directory.
   * @param monotonicMs for the store's own measuring
   */
  readonly openStore: (directory: string, monotonicMs: () => number) => Promise<Generations>;
  /** Listens for peers, and connects to them once it is told of any. */
  readonly createTransport: (options: TransportOptions) => Promise<Transport>;
  readonly askToJoin: AskToJoin;
  /** A random UUID: cell ids and incarnations must never meet again. */
  readonly uuid: () => string;
}

/** The real machine. */
export function createNodePlatform(): Platform {
  return {
    disk: createNodeDisk(),
    openStore: (directory, now) =>
      openGenerations(directory, { openStore: (path) => openRocksStore(path, { now }) }),
    createTransport,
    askToJoin,
    uuid: randomUUID,
  };
}

async function askToJoin(
  target: string,
  request: admin.AddLearnerRequest,
): Promise<admin.AddLearnerResponse> {
  const client = new admin.AdminClient(target, credentials.createInsecure());
  try {
    return await new Promise<admin.AddLearnerResponse>((resolve, reject) => {
      const options = { deadline: Date.now() + JOIN_TRY_MS_MAX };
      client.addLearner(request, new Metadata(), options, (error, response) => {
        if (error === null) resolve(response);
        else reject(toJoinFailure(error));
      });
    });
  } finally {
    client.close();
  }
}

function toJoinFailure(error: ServiceError): JoinFailure {
  const code = String(error.metadata.get("lockstep-error-code")[0] ?? "");
  const leader = error.metadata.get("lockstep-leader-admin")[0];
  return new JoinFailure(code, error.details, leader === undefined ? undefined : String(leader));
}
