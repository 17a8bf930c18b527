/**
 * Known bugs that the simulator must catch. A canary is a change to production sources that `register.ts` makes while
 * a process loads them, so production carries no flags for it. Each is a mistake that an engineer has made, here or in
 * another coordination service; `source` names where (B and W and R numbers are those of the bug record and of the
 * hazards in `docs/bugs-we-do-not-have.md`).
 */

import { RECIPE_CANARIES } from "./recipes.ts";

/** One replacement. `find` must occur exactly once in the file, or loading it fails. */
export interface Patch {
  /** From the root of the repository. */
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

export interface Canary {
  readonly name: string;
  /** In one sentence. */
  readonly bug: string;
  readonly source: string;
  /**
   * Invariants expected to catch it: any law whose id begins with one of these (`I9` also stands for `I9-ordered`).
   * `fatal` is a member that stopped itself over a broken invariant, `start` one that refused to start from a sound disk.
   */
  readonly laws: readonly string[];
  /** What a world must offer for it to show; for whoever tunes the workload. */
  readonly needs: string;
  readonly patches: readonly Patch[];
}

const ackBeforeFsync: Canary = {
  name: "ack-before-fsync",
  bug: "What waits for a log write (acknowledgements, votes, the leader's own count) goes out as soon as the write is handed to the log.",
  source: "B4, B27, B43, R1",
  laws: ["I5", "I6", "W13", "I3", "I8", "fatal", "start"],
  needs: "power cuts that lose what was not synced",
  patches: [
    {
      file: "cell/src/replica/append-lane.ts",
      find: `    const write = { entries: append.entries, ...(hardState === undefined ? {} : { hardState }) };
`,
      replace: `    const write = { entries: append.entries, ...(hardState === undefined ? {} : { hardState }) };
    slot.durable = true;
    this.#drain();
`,
    },
  ],
};

const voteTwiceAfterRestart: Canary = {
  name: "vote-twice-after-restart",
  bug: "The term is made durable without the vote, so that a member that restarts may vote again in the same term.",
  source: "B17, B27, R1, R21",
  laws: ["I5", "I1"],
  needs: "a restart between a vote and the next term, with another candidate in that term",
  patches: [
    {
      file: "cell/src/raft/node.ts",
      find: "append.hardState = { term: core.term, vote: core.vote, commit: log.commit };",
      replace: "append.hardState = { term: core.term, vote: NO_MEMBER, commit: log.commit };",
    },
  ],
};

const readWithoutQuorum: Canary = {
  name: "read-without-quorum",
  bug: "The leader answers linearizable reads from its commit index at once, without asking whether it still leads.",
  source: "B2, B31, R46, R47",
  laws: ["I8", "I12"],
  needs: "a deposed leader (paused or cut off) that clients still reach",
  patches: [
    {
      file: "cell/src/raft/reads.ts",
      find: "if (core.tracker.isSingleVoter) answer(",
      replace: 'if (core.role === "leader") answer(',
    },
  ],
};

const expireByLocalTimer: Canary = {
  name: "expire-by-local-timer",
  bug: "Each member times a lease from when it applied the grant, and a new leader goes by that timer instead of giving every lease its time anew.",
  source: "B3, B20, B28",
  laws: ["I10", "I11"],
  needs: "a change of leader while a renewed session is older than its TTL",
  patches: [
    {
      file: "cell/src/session/keeper.ts",
      find: `    if (!this.#leading) return;
    this.#table.deadlineMs[slot] = this.#nowMs + (this.#table.ttlMs[slot] ?? 0);
`,
      replace: `    this.#table.deadlineMs[slot] = this.#nowMs + (this.#table.ttlMs[slot] ?? 0);
    if (!this.#leading) return;
`,
    },
    {
      file: "cell/src/session/keeper.ts",
      find: "table.deadlineMs[slot] = nowMs + countedMs + this.#options.electionTimeoutMs + spreadMs;",
      replace: "table.deadlineMs[slot] ||= nowMs + countedMs + this.#options.electionTimeoutMs + spreadMs;",
    },
  ],
};

const dropWatchEventAtSnapshot: Canary = {
  name: "drop-watch-event-at-snapshot",
  bug: "When a snapshot replaces the state, a watch goes on after the snapshot's revision instead of after its own.",
  source: "B7",
  laws: ["I9"],
  needs: "a watch at a follower that is then brought up to date by a snapshot, events for it in between",
  patches: [
    {
      file: "cell/src/watch/hub.ts",
      find: "const reached = (this.#revision + 1) as Revision;",
      replace: "const reached = (revision + 1) as Revision;",
    },
  ],
};

const skipAppliedIndex: Canary = {
  name: "skip-applied-index",
  bug: "The batch of an apply leaves out the applied index, which follows in a batch of its own: after a crash in between its entries are applied twice.",
  source: "B5, B9, W10",
  laws: ["I4", "I13", "W10", "I8", "I9", "fatal", "start"],
  needs: "power cuts that end the store's unsynced batches anywhere",
  patches: [
    {
      file: "cell/src/replica/state.ts",
      find: "    this.writeRows(applied.mutations);\n",
      replace: `    this.writeRows(applied.mutations.filter((row) => row.keyspace !== "meta"));
    this.writeRows(applied.mutations.filter((row) => row.keyspace === "meta"));
`,
    },
  ],
};

const writeBackWithoutIndex: Canary = {
  name: "write-back-without-index",
  bug: "The applied index is written at once while the rows that belong to it wait: a crash loses those, and nothing applies their entries again.",
  source: "W10",
  laws: ["I4", "I13", "W10", "I8", "I9", "fatal", "start"],
  needs: "kills and power cuts between two barriers",
  patches: [
    {
      file: "cell/src/store/write-back.ts",
      find: "this.#waiting[keyspace].set(key, value, isNew);",
      replace: `{
        if (keyspace === "meta") writeRow(batch, keyspace, { key, value });
        else this.#waiting[keyspace].set(key, value, isNew);
      }`,
    },
  ],
};

const reuseMemberId: Canary = {
  name: "reuse-member-id",
  bug: "The next member id is the highest present one plus one, so that the id of a removed member is given to another disk.",
  source: "B16, B31, R42, W17",
  laws: ["I7"],
  needs: "the member with the highest id is removed, and another one joins",
  patches: [
    {
      file: "cell/src/machine/membership.ts",
      find: "    removedIds: [...membership.removedIds, ...gone].sort((a, b) => a - b),\n    nextMemberId: added === undefined ? membership.nextMemberId : ((added.id + 1) as MemberId),\n",
      replace: `    removedIds: [...membership.removedIds, ...gone].filter((id) => id !== added?.id).sort((a, b) => a - b),
    nextMemberId: (Math.max(0, ...members.map((member) => member.id)) + 1) as MemberId,
`,
    },
  ],
};

const removedLeaderCounts: Canary = {
  name: "removed-leader-counts",
  bug: "A leader that is not in the new configuration still counts its own acknowledgement towards that configuration's majority.",
  source: "B30, R39",
  laws: ["I6", "I3", "I8"],
  needs: "a change that removes or demotes the leader, under writes and with a slow follower",
  patches: [
    {
      file: "cell/src/raft/tracker.ts",
      find: "if (!members.includes(id)) this.#progress.delete(id);",
      replace: "if (!members.includes(id) && id !== this.#options.id) this.#progress.delete(id);",
    },
    {
      file: "cell/src/raft/tracker.ts",
      find: "return jointIndex(this.configuration, this.#matchOf, this.#scratch) as LogIndex;",
      replace: "return this.#jointIndexWithSelf(this.#matchOf) as LogIndex;",
    },
    {
      file: "cell/src/raft/tracker.ts",
      find: "return jointIndex(this.configuration, this.#roundOf, this.#scratch);\n  }\n",
      replace: `return this.#jointIndexWithSelf(this.#roundOf);
  }

  #jointIndexWithSelf(indexOf: (id: MemberId) => number): number {
    if (this.own === undefined) return jointIndex(this.configuration, indexOf, this.#scratch);
    const { id } = this.own;
    const counted = (half: readonly MemberId[]): number =>
      half.length === 0
        ? Infinity
        : ([id, ...half.filter((other) => other !== id)].map(indexOf).sort((a, b) => b - a)[
            half.length >> 1
          ] as number);
    return Math.min(counted(this.configuration.voters), counted(this.configuration.outgoing));
  }
`,
    },
  ],
};

const oldReadBatch: Canary = {
  name: "old-read-batch",
  bug: "A read that arrives within an election timeout (in ticks) of a confirmed read-index round is served by that round instead of a new one.",
  source: "B1, B2, B31, R47, R48",
  laws: ["I8", "I12"],
  needs:
    "a leader that is paused past its deposition and finds reads waiting when it wakes (it makes up for at most an election timeout of ticks)",
  patches: [
    {
      file: "cell/src/raft/reads.ts",
      find: "if (core.tracker.isSingleVoter) answer(",
      replace: `const { contactTick } = core.rounds;
  const confirmed = contactTick >= 0 && core.ticks - contactTick <= core.options.electionTimeoutTicks;
  if (core.tracker.isSingleVoter || confirmed) answer(`,
    },
  ],
};

const forgetRequestsAtSnapshot: Canary = {
  name: "forget-requests-at-snapshot",
  bug: "The state stream leaves out the remembered requests, so that a member brought up by a snapshot knows no client and no outcome.",
  source: "B33, architecture section 5",
  laws: ["I4", "I13", "I-idempotence", "I8", "fatal", "start"],
  needs: "a snapshot, then commands of clients that registered before it",
  patches: [
    {
      file: "cell/src/store/snapshot-format.ts",
      find: '  ["requests", 5],\n',
      replace: "",
    },
  ],
};

const truncatePastBarrier: Canary = {
  name: "truncate-past-barrier",
  bug: "When log is released, it is released up to what is applied instead of what the store has made durable.",
  source: "B43, W9",
  laws: ["W9", "I5", "fatal", "start"],
  needs:
    "a logKeepBytes that is passed within the history, and barriers that take time; for more than the law that watches releases: segments of a few KiB (the log's start on disk moves only with a freed segment) and power cuts",
  patches: [
    {
      file: "cell/src/replica/log-keeper.ts",
      find: `    const target = this.#releasable();
    if (target === undefined) return;
    const { raft, wal } = this.#options;
    assert(target <= this.#barrierIndex, "the log is released only behind the barrier", {
      target,
      barrier: this.#barrierIndex,
    });
`,
      replace: `    if (this.#releasable() === undefined) return;
    const { raft, wal, state } = this.#options;
    const target = state.appliedIndex;
`,
    },
  ],
};

const checkpointUncleared: Canary = {
  name: "checkpoint-uncleared",
  bug: "A renewal of a lease is acknowledged while its remaining-time checkpoint stays, and the next leader counts from the checkpoint.",
  source: "B20, architecture section 6",
  laws: ["I10"],
  needs:
    "a checkpoint interval well below the TTL (production: 5 minutes), a renewal after a checkpoint, then within an interval a change of leader, while the client is cut off or paused (not killed) until the lease ends",
  patches: [
    {
      file: "cell/src/session/keeper.ts",
      find: `    if ((table.checkpointMs[slot] ?? 0) > 0) {
      this.#queueClear(slot);
      return WAITS;
    }
`,
      replace: "",
    },
  ],
};

const skipOneBatch: Canary = {
  name: "skip-one-batch",
  bug: "On member 2, the store never gets one batch of an apply (the first one with history after index 40 of each of its runs).",
  source: "B5, W10, W19",
  laws: ["W10", "I4", "I13", "I8", "I9", "fatal", "start"],
  needs:
    "a cell with a member 2; the rolling digest alone does not see it, a look into the store does (applied index after each batch, rows at rest, a restart, a watch that catches up)",
  patches: [
    {
      file: "cell/src/replica/state.ts",
      find: "    this.writeRows(applied.mutations);\n",
      replace: `    const isSkipped =
      this.appliedIndex >= this.skipFrom && applied.mutations.some((row) => row.keyspace === "history");
    if (isSkipped) this.skipFrom = Number.POSITIVE_INFINITY;
    else this.writeRows(applied.mutations);
`,
    },
    {
      file: "cell/src/replica/state.ts",
      find: "  #membership: Membership;\n",
      replace: "  #membership: Membership;\n  skipFrom = Number.POSITIVE_INFINITY;\n",
    },
    {
      file: "cell/src/replica/replica.ts",
      find: "    this.parts = parts;\n",
      replace:
        "    this.parts = parts;\n    if (Number(parts.self) === 2) Object.assign(state, { skipFrom: 40 });\n",
    },
  ],
};

const earlyOwnVote: Canary = {
  name: "early-own-vote",
  bug: "A candidate counts its vote for itself before term and vote are durable, and may vote for another one in that term after a crash.",
  source: "B12, B17, R3",
  laws: ["I5", "I1"],
  needs:
    "a candidate whose own disk is slower than its voters' answers; a law that asks for a durable quorum of votes at the moment of election sees it at once, two leaders in a term take a crash in that moment",
  patches: [
    {
      file: "cell/src/raft/election.ts",
      find: "if (core.isDurable) countVote(core, vote);\n  else core.ownVotes.push(vote);\n",
      replace: "countVote(core, vote);\n",
    },
  ],
};

const eraseOnDelayedAppend: Canary = {
  name: "erase-on-delayed-append",
  bug: "A follower cuts its log behind every append, also behind one that is late and tells nothing new, and so forgets entries it has acknowledged.",
  source: "R23; the commonest mistake in implementations of Raft",
  laws: ["I3", "I6", "fatal", "start"],
  needs: "appends that arrive twice or out of order",
  patches: [
    {
      file: "cell/src/raft/log.ts",
      find: `      if (!this.matches(entry.index, entry.term)) {
`,
      replace: `      if (entry.index > this.commit) {
`,
    },
  ],
};

const renewalByDeposedLeader: Canary = {
  name: "renewal-by-deposed-leader",
  bug: "A leader acknowledges renewals without a recent answer of a quorum, also right after a pause in which it was deposed.",
  source: "B3, B21",
  laws: ["I10", "I11"],
  needs: "a leader paused or cut off past an election, a client that renews at it",
  patches: [
    {
      file: "cell/src/session/keeper.ts",
      find: `    return (
      this.#proveSinceMs === undefined &&
      nowMs - this.#lastTickMs <= this.#options.lateTickMs &&
      nowMs - this.#contactMs <= this.#options.electionTimeoutMs
    );
`,
      replace: "    return nowMs >= this.#lastTickMs;\n",
    },
  ],
};

const deadlineFromAnswer: Canary = {
  name: "deadline-from-answer",
  bug: "A client counts its session from when a renewal's answer arrived instead of from when the renewal was sent.",
  source: "B18, B28",
  laws: ["I10", "I11"],
  needs:
    "renewals whose answers are slow, a client that is cut off or paused after one, and a checker that asks the client's own belief when its lease ends",
  patches: [
    {
      file: "client/src/channel/lease-keeper.ts",
      find: "      lease.lastSent = renewal.sent;\n",
      replace:
        "      lease.lastSent = { monotonicMs: this.#runtime.now(), wallMs: this.#runtime.wallNow() };\n",
    },
  ],
};

const lateDuplicateRuns: Canary = {
  name: "late-duplicate-runs",
  bug: "The cell looks only for a remembered outcome: a copy of a request that arrives after its answer was acknowledged runs again.",
  source: "B33, B34",
  laws: ["I-idempotence", "I8"],
  needs:
    "a request sent again over another stream while its first copy waits in a paused member or a slow connection, and later requests of that client before the first copy arrives",
  patches: [
    {
      file: "cell/src/machine/clients.ts",
      find: "    if (sequence < client.floor) return EXPIRED;\n",
      replace: "",
    },
  ],
};

const watchResumeOffByOne: Canary = {
  name: "watch-resume-off-by-one",
  bug: "A client resumes a watch one revision after the first one that it has not seen.",
  source: "B6, B8",
  laws: ["I9"],
  needs: "watches resumed on a new stream, with an event at exactly the revision to resume from",
  patches: [
    {
      file: "client/src/channel/watch-registry.ts",
      find: "      startRevision: watch.nextRevision,\n",
      replace: "      startRevision: watch.created ? watch.nextRevision + 1 : watch.nextRevision,\n",
    },
  ],
};

const readBeforeOwnTerm: Canary = {
  name: "read-before-own-term",
  bug: "A new leader serves reads from a commit index that it knew as a follower, before an entry of its own term is committed.",
  source: "B2, R46",
  laws: ["I8", "I12"],
  needs: "reads in the moment after an election, at a leader that had not heard of the newest commit",
  patches: [
    {
      file: "cell/src/raft/reads.ts",
      find: "if (!core.committedInTerm || !core.rounds.waiting) return;",
      replace: "if (!core.rounds.waiting) return;",
    },
    {
      file: "cell/src/raft/replication.ts",
      find: "rounds.startRound(core.ticks, core.committedInTerm ? log.commit : undefined)",
      replace: "rounds.startRound(core.ticks, log.commit)",
    },
  ],
};

/** In the order of the table. */
export const CANARIES: readonly Canary[] = [
  ackBeforeFsync,
  voteTwiceAfterRestart,
  readWithoutQuorum,
  expireByLocalTimer,
  dropWatchEventAtSnapshot,
  skipAppliedIndex,
  writeBackWithoutIndex,
  reuseMemberId,
  removedLeaderCounts,
  oldReadBatch,
  forgetRequestsAtSnapshot,
  truncatePastBarrier,
  checkpointUncleared,
  skipOneBatch,
  earlyOwnVote,
  eraseOnDelayedAppend,
  renewalByDeposedLeader,
  deadlineFromAnswer,
  lateDuplicateRuns,
  watchResumeOffByOne,
  readBeforeOwnTerm,
  ...RECIPE_CANARIES,
];

/** @throws {TypeError} when there is none of that name */
export function findCanary(name: string): Canary {
  const canary = CANARIES.find((candidate) => candidate.name === name);
  if (canary !== undefined) return canary;
  const known = CANARIES.map((candidate) => candidate.name).join(", ");
  throw new TypeError(`there is no canary "${name}"; there are: ${known}`);
}

/** Whether a law that fired is one of those expected to. */
export function isExpectedLaw(canary: Canary, law: string): boolean {
  return canary.laws.some((expected) => law === expected || law.startsWith(`${expected}-`));
}
