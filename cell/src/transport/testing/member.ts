import type { MemberId, Message, LogIndex, Term } from "../../raft/types.ts";
import type { PeerAddress } from "../types.ts";
import { createTransport } from "../index.ts";
import type {
  AdmissionVerdict,
  ListeningTransport,
  PeerNotice,
  SnapshotOffer,
  SnapshotReceiver,
  Transport,
  TransportHandlers,
  TransportOptions,
} from "../index.ts";

export const CELL = "cell-under-test";

export function id(number: number): MemberId {
  return number as MemberId;
}

export function heartbeat(from: number, to: number, round: number): Message {
  return {
    kind: "heartbeat",
    from: id(from),
    to: id(to),
    term: 1 as Term,
    commit: 0 as LogIndex,
    readRound: round,
  };
}

export function append(from: number, to: number, data: Uint8Array): Message {
  return {
    kind: "append",
    from: id(from),
    to: id(to),
    term: 1 as Term,
    prevIndex: 0 as LogIndex,
    prevTerm: 0 as Term,
    entries: [{ term: 1 as Term, index: 1 as LogIndex, kind: "normal", data }],
    commit: 0 as LogIndex,
  };
}

/** Everything one member's transport told its host, and what the host answers. */
export class Host implements TransportHandlers {
  readonly calls: (readonly Message[])[] = [];
  readonly messagesReceived: Message[] = [];
  readonly notices: PeerNotice[] = [];
  readonly lost: MemberId[] = [];
  readonly notReached: MemberId[] = [];
  readonly refusals: string[] = [];
  readonly logged: string[] = [];
  verdict: AdmissionVerdict = { ok: true };
  onRequest: TransportHandlers["request"] = (_from, body, answer) => answer(body);
  onSnapshot: (offer: SnapshotOffer) => SnapshotReceiver | undefined = () => undefined;

  /** Set by a test with TLS. */
  recognise?: NonNullable<TransportHandlers["recognise"]>;
  admitted = false;

  admit(): AdmissionVerdict {
    this.admitted = true;
    return this.verdict;
  }
  messages(_from: MemberId, messages: readonly Message[]): void {
    this.calls.push(messages);
    this.messagesReceived.push(...messages);
  }
  notice(_from: MemberId, notice: PeerNotice): void {
    this.notices.push(notice);
  }
  disconnected(peer: MemberId): void {
    this.lost.push(peer);
  }
  unreachable(peer: MemberId): void {
    this.notReached.push(peer);
  }
  request(from: MemberId, body: Uint8Array, answer: (body: Uint8Array) => void): void {
    this.onRequest(from, body, answer);
  }
  snapshot(_from: MemberId, offer: SnapshotOffer): SnapshotReceiver | undefined {
    return this.onSnapshot(offer);
  }
  refused(_peer: MemberId, reason: string): void {
    this.refusals.push(reason);
  }
}

export interface Member {
  readonly host: Host;
  readonly transport: ListeningTransport;
}

/** Members of one test; closes them all, whatever happened. */
export class Members implements AsyncDisposable {
  readonly #open: Transport[] = [];

  async start(number: number, options: Partial<TransportOptions> = {}): Promise<Member> {
    const host = new Host();
    const transport = await createTransport({
      identity: { cellId: CELL, memberId: id(number), incarnation: `life-${number}` },
      listen: { host: "127.0.0.1", port: 0 },
      handlers: host,
      log: (_level, message, detail) => host.logged.push(`${message} ${JSON.stringify(detail)}`),
      ...options,
      bounds: { backoffMsMin: 2, backoffMsMax: 20, ...options.bounds },
    });
    this.#open.push(transport);
    return { host, transport };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#open.map((transport) => transport.close()));
  }
}

export function peer(number: number, address: string, incarnation: string = `life-${number}`): PeerAddress {
  return { memberId: id(number), incarnation, address };
}

/** Joins members 1 and 2 and waits until both streams are up. */
export async function join(one: Member, two: Member): Promise<void> {
  one.transport.setPeers([peer(2, two.transport.address)]);
  two.transport.setPeers([peer(1, one.transport.address)]);
  await until(() => one.transport.connected().length === 1 && two.transport.connected().length === 1);
}

const PATIENCE_MS = 8_000;

/** Lets the event loop turn until `condition` holds; fails when that never comes. */
export async function until(condition: () => boolean): Promise<void> {
  const deadlineMs = performance.now() + PATIENCE_MS;
  while (!condition()) {
    if (performance.now() > deadlineMs) throw new Error(`never became true: ${condition.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

export function ask(
  member: Member,
  to: number,
  body: Uint8Array,
  timeoutMs = 5_000,
): Promise<Uint8Array | undefined | "unsent"> {
  return new Promise((resolve) => member.transport.request(id(to), body, timeoutMs, resolve));
}
