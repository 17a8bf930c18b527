/** Canaries in the recipes of the client. */
import type { Canary } from "./canaries.ts";

const oneGoneIsAllGone: Canary = {
  name: "one-gone-is-all-gone",
  bug: "Who waits in a queue goes when any one of those that it follows has gone, without asking whether that was the last.",
  source:
    "the recipe's oldest mistake: a candidate that dies in the middle of the queue makes a second leader",
  laws: ["I11"],
  needs: "three in a queue, and one in the middle that gives up or dies",
  patches: [
    {
      file: "client/src/recipes/queue.ts",
      find: "if (left.size === 0 && all) return true;",
      replace: "if (left.size < nearest.length) return true;",
    },
  ],
};

const writerPassesReaders: Canary = {
  name: "writer-passes-readers",
  bug: "Who wants to write waits for the writers before and not for those who read.",
  source: "architecture section 1",
  laws: ["I11"],
  needs: "a read-write lock with readers and writers at a time",
  patches: [
    {
      file: "client/src/recipes/read-write-lock.ts",
      find: "ahead: [write, read] }",
      replace: "ahead: [write] }",
    },
  ],
};

const slotsSeenEarlier: Canary = {
  name: "slots-seen-earlier",
  bug: "Who takes a permit goes by the slots as they were when it came into the queue, and puts its own key over that of whoever has one: the slot keeps its old token.",
  source: "architecture section 1: a token domain per permit slot",
  laws: ["I11"],
  needs: "a semaphore whose permits are all held while somebody waits",
  patches: [
    {
      file: "client/src/recipes/semaphore.ts",
      find: "      ahead.nearest.length === 0 && seen !== undefined\n",
      replace: "      seen !== undefined\n",
    },
    {
      file: "client/src/recipes/semaphore.ts",
      find: `          { key: place.key, createRevision: place.token },
          { key, createRevision: 0 },
`,
      replace: `          { key: place.key, createRevision: place.token },
`,
    },
  ],
};

const watchFromNow: Canary = {
  name: "watch-from-now",
  bug: "Who waits in a queue watches from the present on instead of from the answer that showed who is before, and never hears of what was freed in between.",
  source: "the lost wake-up; C19 and C22 of docs/complaints.md are its neighbours",
  laws: ["I11-waits", "actors"],
  needs: "something that is freed between an answer and the watch, and a waiter without a bound",
  patches: [
    {
      file: "client/src/recipes/queue.ts",
      find: "        revision,\n        stop: wait.stop,\n",
      replace: "        revision: -1,\n        stop: wait.stop,\n",
    },
  ],
};

const lostAnswerForgotten: Canary = {
  name: "lost-answer-forgotten",
  bug: "A claim whose answer was lost is not looked for: it stays, in everybody's way, for as long as its session lives.",
  source: "etcd#9715 and its kin (C22 of docs/complaints.md)",
  // `actors`: it waits behind its own key.
  laws: ["I11-left", "actors"],
  needs: "answers that are lost at their deadline, and a session that lives on",
  patches: [
    {
      file: "client/src/recipes/attempt.ts",
      find: `        await insist(client, session, creation.undoUnknown);
        void lookAgain(client, session, creation.undoUnknown);
`,
      replace: "",
    },
  ],
};

const placeKeptAfterGivingUp: Canary = {
  name: "place-kept-after-giving-up",
  bug: "Who gives up waiting leaves its place in the queue, and everybody behind waits for it until its session ends.",
  source: "etcd#9715 (C22 of docs/complaints.md)",
  // `actors`: it waits behind its own place.
  laws: ["I11-left", "actors"],
  needs: "waits with a bound, and a session that lives on after them",
  patches: [
    {
      file: "client/src/recipes/queue.ts",
      find: "      await this.giveUp(wait, entered.place);\n",
      replace: "",
    },
  ],
};

const releaseWithoutComparing: Canary = {
  name: "release-without-comparing",
  bug: "A release deletes the key of its claim whoever has it by now.",
  source: "etcd#22082 (C21 of docs/complaints.md)",
  laws: ["I11", "I10"],
  needs: "a release that is executed late: sent again, or waiting in a paused member, past its session's end",
  patches: [
    {
      file: "client/src/recipes/claim.ts",
      find: "          compares: keys.map((key) => ({ key, createRevision: token })),\n",
      replace: "          compares: [],\n",
    },
  ],
};

const permitWithTicketToken: Canary = {
  name: "permit-with-ticket-token",
  bug: "A permit is fenced by the revision of its ticket in the queue instead of that of its slot.",
  source: "architecture section 1: the token is the create revision of the owner's key",
  laws: ["I11-token"],
  needs: "a semaphore",
  patches: [
    {
      file: "client/src/recipes/semaphore.ts",
      find: "{ name: this.name, slot, key, token: put.createRevision }",
      replace: "{ name: this.name, slot, key, token: place.token }",
    },
  ],
};

const observerMissesTheEnd: Canary = {
  name: "observer-misses-the-end",
  bug: "Who observes an election goes on to look at the leader's key after it is gone, and sees neither that nobody leads nor who leads next.",
  source: "etcd#18163, etcd#7815 (D31 of docs/complaints.md)",
  laws: ["I11-observed"],
  needs: "an election that changes hands, and an observer that is still there when the cell is well",
  patches: [
    {
      file: "client/src/recipes/election.ts",
      find: 'if (leader === undefined || event.kind === "delete") return;',
      replace: 'if (leader === undefined) return;\n        if (event.kind === "delete") continue;',
    },
  ],
};

/** In the order of the table. */
export const RECIPE_CANARIES: readonly Canary[] = [
  oneGoneIsAllGone,
  writerPassesReaders,
  slotsSeenEarlier,
  permitWithTicketToken,
  watchFromNow,
  lostAnswerForgotten,
  placeKeptAfterGivingUp,
  releaseWithoutComparing,
  observerMissesTheEnd,
];
