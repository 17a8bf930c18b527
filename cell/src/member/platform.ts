import { randomUUID } from "node:crypto";
import { createSecureContext } from "node:tls";
import type { PeerCertificate } from "node:tls";
import { Metadata, credentials } from "@grpc/grpc-js";
import type { ChannelCredentials, ServiceError } from "@grpc/grpc-js";
import { secureContextOptions } from "@lockstep/gateway";
import { admin } from "@lockstep/proto";
import { openGenerations, openRocksStore, writeBack } from "../store/index.ts";
import type { Generations } from "../store/index.ts";
import { createTransport } from "../transport/index.ts";
import type { TransportOptions } from "../transport/index.ts";
import type { Transport } from "../transport/types.ts";
import { createNodeDisk } from "../wal/index.ts";
import type { Disk } from "../wal/types.ts";
import { JOIN_TRY_MS_MAX, JoinFailure } from "./join.ts";
import type { AskToJoin } from "./join.ts";
import { readPeer } from "./tls-access.ts";
import type { TlsSource } from "./tls-source.ts";

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

/** What members prove themselves to each other with. */
export interface PlatformTls {
  readonly source: TlsSource;
  readonly cellUid: string;
}

/** The real machine. @param tls absent: plain text */
export function createNodePlatform(tls?: PlatformTls): Platform {
  return {
    disk: createNodeDisk(),
    openStore: (directory, now) =>
      openGenerations(directory, {
        openStore: async (path) => writeBack(await openRocksStore(path, { now })),
      }),
    createTransport: async (options) => {
      if (tls === undefined) return createTransport(options);
      const { source } = tls;
      const first = source.current;
      const transport = await createTransport({ ...options, tls: first });
      source.listen(first, (renewed) => transport.updateTls(renewed));
      return transport;
    },
    askToJoin: (target, request) => askToJoin(target, request, joinCredentials(tls)),
    uuid: randomUUID,
  };
}

async function askToJoin(
  target: string,
  request: admin.AddLearnerRequest,
  channelCredentials: ChannelCredentials,
): Promise<admin.AddLearnerResponse> {
  const client = new admin.AdminClient(target, channelCredentials);
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

/** A member of the cell is asked, whatever name it is dialled by; see the transport between members. */
function joinCredentials(tls: PlatformTls | undefined): ChannelCredentials {
  if (tls === undefined) return credentials.createInsecure();
  const context = createSecureContext(secureContextOptions(tls.source.current));
  return credentials.createFromSecureContext(context, {
    checkServerIdentity: (_host: string, certificate: PeerCertificate) => {
      const names = { commonName: "", alternativeNames: certificate.subjectaltname ?? "" };
      const proved = readPeer(names, tls.cellUid);
      return proved.ok ? undefined : new Error(`not a member of this cell: ${proved.reason}`);
    },
  });
}

function toJoinFailure(error: ServiceError): JoinFailure {
  const code = String(error.metadata.get("lockstep-error-code")[0] ?? "");
  const leader = error.metadata.get("lockstep-leader-admin")[0];
  return new JoinFailure(code, error.details, leader === undefined ? undefined : String(leader));
}
