import { connect as connectHttp2, type ClientHttp2Session } from "node:http2";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { checkServerIdentity, connect as connectTls, type ConnectionOptions } from "node:tls";
import type { TlsOptions } from "./tls.ts";
import { MARKS_MAX } from "./upload.ts";

/** What a member may send ahead of what was read here. */
export const WINDOW_BYTES: number = 4 * 1024 * 1024;

/** An HTTP/2 connection, and the socket under it. */
export class Connection {
  readonly session: ClientHttp2Session;
  readonly #socket: Socket;

  /** @throws TypeError when the address is not `host:port`; what TLS says of its options */
  constructor(address: string, tls: TlsOptions | undefined) {
    const [, name, ip, port] = /^(?:([^\s:/@[\]]+)|\[([\da-fA-F:.]+)\]):(\d+)$/.exec(address) ?? [];
    const host = name ?? ip;
    if (host === undefined) throw new TypeError(`"${address}" is not host:port`);
    const at = { host, port: Number(port) };
    this.#socket = tls === undefined ? connectTcp(at) : connectTls({ ...at, ...tlsOptions(host, tls) });
    // Only the scheme counts: the socket is ours, and each call names its authority.
    this.session = connectHttp2(tls === undefined ? "http://cell" : "https://cell", {
      createConnection: () => this.#socket,
      settings: { enablePush: false, initialWindowSize: WINDOW_BYTES },
      // One for the look at the connection.
      maxOutstandingPings: MARKS_MAX + 1,
      // What is under way is bounded by the channel and by the windows.
      maxSessionMemory: Number.MAX_SAFE_INTEGER,
    });
  }

  /** Of whatever the peer sent, pings' answers too. */
  get receivedBytes(): number {
    return this.#socket.bytesRead;
  }

  /**
   * Closes at once. A session by itself ends its socket in order: not before what was written has left, nor before it is
   * connected, which with a peer that is gone is never.
   */
  destroy(): void {
    this.session.destroy();
    // What the session says last may still leave.
    setImmediate(() => this.#socket.destroy());
  }
}

function tlsOptions(host: string, { ca, cert, key, serverName }: TlsOptions): ConnectionOptions {
  return {
    ...{ minVersion: "TLSv1.3", rejectUnauthorized: true, ALPNProtocols: ["h2"] },
    // The name in a handshake cannot be an address.
    servername: isIP(serverName ?? host) === 0 ? (serverName ?? host) : "",
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(serverName === undefined
      ? {}
      : { checkServerIdentity: (_dialled, certificate) => checkServerIdentity(serverName, certificate) }),
  };
}
