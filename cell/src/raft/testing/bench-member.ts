/** One member alone, for laws about what it does with one message: its disk is instant unless held. */
import { createRaft, EMPTY_CONFIGURATION } from "../index.ts";
import type {
  Append,
  Configuration,
  Entry,
  LogIndex,
  MemberId,
  Message,
  RaftNode,
  RaftOptions,
  ReadState,
  Term,
  VoteResponse,
} from "../types.ts";
import { changeData } from "./story.ts";

export const term = (value: number): Term => value as Term;
export const index = (value: number): LogIndex => value as LogIndex;
export const member = (value: number): MemberId => value as MemberId;
export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

export function voters(...ids: number[]): Configuration {
  return { ...EMPTY_CONFIGURATION, voters: ids.map(member) };
}

/** Entries behind 1/1 with these terms; `["r3"]` in place of a term: a change in the term before it. */
export function entries(from: number, ...items: (number | string[])[]): Entry[] {
  let last = 1;
  return items.map((item, at) => {
    if (typeof item === "number") last = item;
    return {
      term: term(last),
      index: index(from + at),
      kind: typeof item === "number" ? "normal" : "configuration",
      data: typeof item === "number" ? bytes(`${item}`) : changeData(...item),
    };
  });
}

interface Setting {
  readonly configuration?: Configuration;
  readonly log?: readonly Entry[];
  readonly term?: number;
  readonly vote?: number;
  readonly commit?: number;
  readonly applied?: number;
  readonly options?: Partial<RaftOptions>;
}

/** Member 1 of a cell of three, unless told otherwise. */
export class Bench {
  readonly node: RaftNode;
  /** While true, appends stay under way. */
  holdDisk = false;
  /** While true, committed entries are not applied. */
  holdApply = false;
  appends: Append[] = [];
  sent: Message[] = [];
  delivered: Entry[] = [];
  reads: ReadState[] = [];
  dropped: number[] = [];
  wanted: MemberId[] = [];

  constructor(setting: Setting = {}) {
    const log = setting.log ?? [];
    this.node = createRaft(
      { id: member(1), random: () => 0, ...setting.options },
      {
        hardState: {
          term: term(setting.term ?? log.at(-1)?.term ?? 1),
          vote: member(setting.vote ?? 0),
          commit: index(setting.commit ?? 1),
        },
        logStart: { index: index(1), term: term(1) },
        entries: log,
        applied: index(setting.applied ?? 1),
        configuration: setting.configuration ?? voters(1, 2, 3),
      },
    );
  }

  /** Carries out everything there is to do. @returns what was sent meanwhile */
  settle(): Message[] {
    const before = this.sent.length;
    while (this.node.hasReady()) {
      const ready = this.node.ready();
      this.sent.push(...ready.messages);
      this.reads.push(...ready.reads);
      this.dropped.push(...ready.readsDropped);
      this.wanted.push(...ready.snapshotsWanted);
      this.delivered.push(...ready.committed);
      if (ready.append !== undefined) this.appends.push(ready.append);
      if (!this.holdDisk) this.finishWrites();
      const last = ready.committed.at(-1);
      if (last !== undefined && !this.holdApply) this.node.applied(last.index);
    }
    return this.sent.slice(before);
  }

  finishWrites(count: number = this.appends.length): void {
    for (const append of this.appends.splice(0, count)) {
      this.node.appended(append.token);
      this.sent.push(...append.held);
    }
  }

  step(message: Message): Message[] {
    this.node.step(message);
    return this.settle();
  }

  tick(count: number): Message[] {
    const before = this.sent.length;
    for (let left = count; left > 0; left--) {
      this.node.tick();
      this.settle();
    }
    return this.sent.slice(before);
  }

  /** Elected by the votes of these. */
  lead(...by: number[]): Message[] {
    this.node.campaign();
    this.settle();
    const asked = this.node.term + 1;
    for (const id of by) this.step(preVoteGrant(id, asked));
    for (const id of by) this.step(voteGrant(id, asked));
    return this.settle();
  }
}

export function preVoteGrant(from: number, asked: number): Message {
  return { kind: "pre-vote-response", from: member(from), to: member(1), term: term(asked), granted: true };
}

export function voteGrant(from: number, of: number): VoteResponse {
  return { kind: "vote-response", from: member(from), to: member(1), term: term(of), granted: true };
}

export function voteRequest(
  from: number,
  of: number,
  last: readonly [term: number, index: number],
  extra: { readonly kind?: "vote" | "pre-vote"; readonly transfer?: boolean } = {},
): Message {
  return {
    kind: extra.kind ?? "vote",
    from: member(from),
    to: member(1),
    term: term(of),
    lastTerm: term(last[0]),
    lastIndex: index(last[1]),
    transfer: extra.transfer ?? false,
  };
}

export function append(
  from: number,
  of: number,
  after: readonly [term: number, index: number],
  what: { readonly entries?: readonly Entry[]; readonly commit?: number } = {},
): Message {
  return {
    kind: "append",
    from: member(from),
    to: member(1),
    term: term(of),
    prevTerm: term(after[0]),
    prevIndex: index(after[1]),
    entries: what.entries ?? [],
    commit: index(what.commit ?? 1),
  };
}

export function acknowledgement(from: number, of: number, at: number): Message {
  return {
    kind: "append-response",
    from: member(from),
    to: member(1),
    term: term(of),
    index: index(at),
    rejected: false,
    hintIndex: index(0),
    hintTerm: term(0),
  };
}

export function heartbeat(from: number, of: number, commit: number, readRound = 1): Message {
  return {
    kind: "heartbeat",
    from: member(from),
    to: member(1),
    term: term(of),
    commit: index(commit),
    readRound,
  };
}

export function heartbeatAnswer(from: number, of: number, readRound: number): Message {
  return { kind: "heartbeat-response", from: member(from), to: member(1), term: term(of), readRound };
}

/** The member of the union that has the kind, also if it has others. */
type OfKind<K, M extends Message = Message> = M extends Message ? (K extends M["kind"] ? M : never) : never;

/** Of the kind, from `messages`. */
export function ofKind<K extends Message["kind"]>(messages: readonly Message[], kind: K): OfKind<K>[] {
  return messages.filter((message): message is OfKind<K> => message.kind === kind);
}
