import assert from "node:assert/strict";
import type {
  ConfigurationChange,
  ConfigurationStep,
  Entry,
  LogIndex,
  MemberId,
  Message,
  ProposalResult,
  RaftOptions,
  Term,
} from "../types.ts";
import { EMPTY_CONFIGURATION, encodeConfigurationChange } from "../index.ts";
import { TestMember } from "./member.ts";
import {
  renderAppend,
  renderConfiguration,
  renderEntries,
  renderEntry,
  renderMessage,
  renderProgress,
  renderStatus,
} from "./render.ts";

const STEP_KINDS: Record<string, ConfigurationStep["kind"]> = {
  v: "add-voter",
  l: "add-learner",
  r: "remove",
};

/** Rounds of `stabilize` before it gives up: something would go on for ever. */
const ROUNDS_MAX = 100;

/** One scene: members, their disks and the messages between them, moved by commands (testdata/README.md). */
export class Story {
  readonly #members = new Map<MemberId, TestMember>();
  #network: Message[] = [];
  readonly #cut = new Set<MemberId>();
  readonly #heldDisks = new Set<MemberId>();
  readonly #heldApplies = new Map<MemberId, Entry[]>();
  /** What was last told of each member's role. */
  readonly #told = new Map<MemberId, string>();
  #lines: string[] = [];

  run(command: string): readonly string[] {
    this.#lines = [];
    const words = tokens(command);
    const isQuiet = words[0] === "quietly";
    const [verb = "", ...args] = isQuiet ? words.slice(1) : words;
    const action = this.#actions[verb];
    assert(action !== undefined, `unknown command ${verb}`);
    action(args);
    return isQuiet ? [] : this.#lines;
  }

  readonly #actions: Record<string, (args: string[]) => void> = {
    members: (args) => this.#addMembers(args),
    "load-log": ([id, ...entries]) => this.#loadLog(number(id), entries),
    tick: ([id, count = "1"]) => {
      for (let left = number(count); left > 0; left--) this.#member(id).node.tick();
    },
    campaign: ([id]) => this.#member(id).node.campaign(),
    propose: ([id, text = ""]) =>
      this.#tellResult(this.#member(id).node.propose(new TextEncoder().encode(text))),
    change: ([id, ...words]) =>
      this.#tellResult(this.#member(id).node.proposeConfiguration(parseChange(words))),
    transfer: ([from, to]) => this.#member(from).node.transferLeadership(number(to) as MemberId),
    read: ([id, request]) => this.#member(id).node.readIndex(number(request)),
    "forget-leader": ([id]) => this.#member(id).node.forgetLeader(),
    unreachable: ([id, peer]) => this.#member(id).node.reportUnreachable(number(peer) as MemberId),
    compact: ([id, index]) => this.#member(id).compact(number(index) as LogIndex),
    "start-snapshot": ([from, to]) => this.#startSnapshot(number(from), number(to)),
    "end-snapshot": ([from, to, outcome]) =>
      this.#member(from).node.snapshotFinished(number(to) as MemberId, outcome !== "failed"),
    ready: (ids) => ids.forEach((id) => this.#ready(this.#member(id))),
    stabilize: (ids) => this.#stabilize(ids),
    deliver: ([route = "", count = "1000"]) => this.#deliver(route, number(count)),
    drop: ([route = ""]) => this.#drop(route),
    cut: (ids) => ids.forEach((id) => this.#cut.add(number(id) as MemberId)),
    heal: (ids) => ids.forEach((id) => this.#cut.delete(number(id) as MemberId)),
    "hold-disk": (ids) => ids.forEach((id) => this.#heldDisks.add(number(id) as MemberId)),
    "finish-writes": ([id, count = "1000"]) => this.#finishWrites(this.#member(id), number(count)),
    "release-disk": (ids) =>
      ids.forEach((id) => {
        this.#heldDisks.delete(number(id) as MemberId);
        this.#finishWrites(this.#member(id), 1_000);
      }),
    "hold-apply": (ids) => ids.forEach((id) => this.#heldApplies.set(number(id) as MemberId, [])),
    apply: ([id, count = "1000"]) => this.#applyHeld(this.#member(id), number(count)),
    "release-apply": (ids) =>
      ids.forEach((id) => {
        this.#applyHeld(this.#member(id), 1_000);
        this.#heldApplies.delete(number(id) as MemberId);
      }),
    restart: (ids) => ids.forEach((id) => this.#restart(this.#member(id))),
    status: (ids) => this.#status(ids),
    progress: (ids) => ids.forEach((id) => this.#progress(this.#member(id))),
    log: (ids) => ids.forEach((id) => this.#log(this.#member(id))),
    network: () => this.#network.forEach((message) => this.#tell(renderMessage(message))),
  };

  #tell(line: string): void {
    this.#lines.push(line);
  }

  #tellResult(result: ProposalResult): void {
    this.#tell(result.ok ? `accepted ${result.term}/${result.index}` : `refused: ${result.reason}`);
  }

  #member(id: string | number | undefined): TestMember {
    const member = this.#members.get(Number(id) as MemberId);
    assert(member !== undefined, `no member ${id}`);
    return member;
  }

  /** `members 1 2 3 voters=1,2,3 learners=4 index=10 window=3 append-bytes=…`; `fresh` for joiners. */
  #addMembers(args: readonly string[]): void {
    const options = new Map(args.filter((a) => a.includes("=")).map((a) => a.split("=") as [string, string]));
    const ids = args.filter((a) => /^\d+$/.test(a)).map((a) => Number(a) as MemberId);
    const list = (name: string): MemberId[] =>
      (options.get(name) ?? "")
        .split(",")
        .filter(Boolean)
        .map((id) => Number(id) as MemberId);
    const isFresh = args.includes("fresh");
    const index = isFresh ? 0 : Number(options.get("index") ?? 10);
    const configuration = isFresh
      ? EMPTY_CONFIGURATION
      : { ...EMPTY_CONFIGURATION, voters: list("voters"), learners: list("learners") };
    const raftOptions: Partial<RaftOptions> = {
      ...(options.has("window") ? { inflightMessagesMax: Number(options.get("window")) } : {}),
      ...(options.has("append-bytes") ? { appendBytesMax: Number(options.get("append-bytes")) } : {}),
    };
    const start = { index: index as LogIndex, term: (index === 0 ? 0 : 1) as Term, configuration };
    for (const id of ids) {
      // Timers of 10 ticks for member 1, 11 for member 2, and so on.
      const random = (): number => ((id - 1) % 10) / 10;
      this.#members.set(id, new TestMember(id, { ...raftOptions, random }, start));
    }
  }

  /** `load-log 2 term=6 1 1 1 4 4 5 5 6 6 6`: a disk with entries of these terms behind the founding snapshot. */
  #loadLog(id: number, words: readonly string[]): void {
    const member = this.#member(id);
    const terms = words.filter((word) => /^\d+$/.test(word)).map(Number);
    const term = words.find((word) => word.startsWith("term="))?.slice(5);
    member.disk.entries = terms.map((entryTerm, at) => ({
      term: entryTerm as Term,
      index: (member.disk.logStart.index + 1 + at) as LogIndex,
      kind: "normal",
      data: new TextEncoder().encode(`x${entryTerm}`),
    }));
    member.disk.hardState = {
      term: Number(term ?? terms.at(-1) ?? 1) as Term,
      vote: 0 as MemberId,
      commit: member.appliedIndex,
    };
    member.restart();
    this.#log(member);
  }

  /** Streams a snapshot of the sender's state: the data is thought of as arriving with the message. */
  #startSnapshot(from: number, to: number): void {
    const sender = this.#member(from);
    const snapshot = sender.snapshot();
    sender.node.snapshotStarted(to as MemberId, snapshot.index);
    this.#post({
      kind: "snapshot",
      from: sender.id,
      to: to as MemberId,
      term: sender.node.term,
      snapshot,
    });
  }

  #post(message: Message): void {
    this.#tell(`  send ${renderMessage(message)}`);
    if (this.#cut.has(message.from) || this.#cut.has(message.to)) return;
    this.#network.push(message);
  }

  #ready(member: TestMember): void {
    const ready = member.ready();
    this.#tellRole(member);
    ready.messages.forEach((message) => this.#post(message));
    for (const { request, index } of ready.reads) this.#tell(`  read ${request} at ${index}`);
    for (const request of ready.readsDropped) this.#tell(`  read ${request} given up`);
    for (const id of ready.snapshotsWanted) this.#tell(`  wants a snapshot for ${id}`);
    if (ready.append !== undefined) {
      this.#tell(`  ${renderAppend(ready.append)}`);
      for (const message of ready.append.held) this.#tell(`    holds ${renderMessage(message)}`);
      if (!this.#heldDisks.has(member.id)) this.#finishWrites(member, 1_000);
    }
    const held = this.#heldApplies.get(member.id);
    if (held !== undefined) held.push(...ready.committed);
    else this.#apply(member, ready.committed);
  }

  #tellRole(member: TestMember): void {
    const { role, term, leader } = member.node;
    const now = `${member.id} is ${role} t${term}${role === "follower" ? ` leader ${leader}` : ""}`;
    if (this.#told.get(member.id) === now) this.#tell(`${member.id}:`);
    else this.#tell(now);
    this.#told.set(member.id, now);
  }

  #finishWrites(member: TestMember, count: number): void {
    for (let left = count; left > 0 && member.writes.length > 0; left--) {
      const token = member.writes[0]!.token;
      const held = member.finishWrite();
      if (this.#heldDisks.has(member.id)) this.#tell(`  durable #${token}`);
      held.forEach((message) => this.#post(message));
    }
  }

  #applyHeld(member: TestMember, count: number): void {
    const held = this.#heldApplies.get(member.id);
    assert(held !== undefined, "hold-apply first");
    this.#apply(member, held.splice(0, count));
  }

  #apply(member: TestMember, entries: readonly Entry[]): void {
    for (const { entry, outcome } of member.apply(entries)) {
      const result =
        entry.kind === "normal"
          ? ""
          : outcome === "applied"
            ? ` -> ${renderConfiguration(member.configuration)}`
            : " refused";
      this.#tell(`  apply ${renderEntry(entry)}${result}`);
    }
  }

  /** Until nothing is left to do among `ids` (everybody, if none are named). */
  #stabilize(ids: readonly string[]): void {
    const members = ids.length > 0 ? ids.map((id) => this.#member(id)) : [...this.#members.values()];
    members.sort((a, b) => a.id - b.id);
    for (let round = 0; round < ROUNDS_MAX; round++) {
      let busy = false;
      for (const member of members) {
        if (!member.node.hasReady()) continue;
        busy = true;
        this.#ready(member);
      }
      for (const member of members) if (this.#pass((m) => m.to === member.id, 1_000, false) > 0) busy = true;
      if (!busy) return;
    }
    assert.fail("it does not come to rest");
  }

  #deliver(route: string, count: number): void {
    if (this.#pass(onRoute(route), count, true) === 0) this.#tell("nothing to deliver");
  }

  #pass(matches: (message: Message) => boolean, count: number, aloud: boolean): number {
    const chosen = this.#network.filter(matches).slice(0, count);
    this.#network = this.#network.filter((message) => !chosen.includes(message));
    for (const message of chosen) {
      if (aloud) this.#tell(renderMessage(message));
      this.#member(message.to).node.step(message);
    }
    return chosen.length;
  }

  #drop(route: string): void {
    const matches = onRoute(route);
    this.#network.filter(matches).forEach((message) => this.#tell(`lost ${renderMessage(message)}`));
    this.#network = this.#network.filter((message) => !matches(message));
  }

  #restart(member: TestMember): void {
    member.restart();
    this.#told.delete(member.id);
    this.#status([String(member.id)]);
  }

  #status(ids: readonly string[]): void {
    for (const id of ids) this.#tell(renderStatus(this.#member(id).node.status()));
  }

  #progress(member: TestMember): void {
    for (const one of member.node.status().progress) this.#tell(renderProgress(one));
  }

  #log(member: TestMember): void {
    const { logStart, entries } = member.disk;
    this.#tell(`${member.id} on disk: after ${logStart.term}/${logStart.index} ${renderEntries(entries)}`);
  }
}

/** `1->2`, `*->2`, `1->*`. */
function onRoute(route: string): (message: Message) => boolean {
  const [from, to] = route.split("->");
  assert(from !== undefined && to !== undefined, `${route} is a route like 1->2 or *->2`);
  return (message) =>
    (from === "*" || message.from === Number(from)) && (to === "*" || message.to === Number(to));
}

/** `v4 l5 r1`, before it `explicit` or `implicit`; `leave` alone. */
export function parseChange(words: readonly string[]): ConfigurationChange {
  const steps = words
    .filter((word) => /^[vlr]\d+$/.test(word))
    .map((word) => ({ kind: STEP_KINDS[word[0]!]!, id: Number(word.slice(1)) as MemberId }));
  const transition = words.includes("explicit")
    ? "joint-explicit"
    : words.includes("implicit")
      ? "joint-implicit"
      : "auto";
  return { transition, steps, context: new Uint8Array(0) };
}

/** The data of a configuration entry, for tests that write logs by hand. */
export function changeData(...words: string[]): Uint8Array {
  return encodeConfigurationChange(parseChange(words));
}

/** Words, with "quoted text" as one. */
function tokens(command: string): string[] {
  return Array.from(command.matchAll(/"([^"]*)"|(\S+)/g), ([, quoted, word]) => quoted ?? word ?? "");
}

function number(word: string | number | undefined): number {
  const value = Number(word);
  assert(Number.isSafeInteger(value), `${word} is a number`);
  return value;
}
