import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { assertLinearizable, checkHistory } from "./check-history.ts";
import { check } from "./checker.ts";
import { History } from "./history.ts";
import { keyModel } from "./model.ts";
import type { KeyInput, KeyOutput, KeyStep, Seen } from "./words.ts";
import { compareAndSet } from "./words.ts";

/** A call of a history that is written down: who, when, what, and the answer. */
type Call =
  | readonly [process: string, from: number, to: number, KeyInput, KeyOutput]
  | readonly [process: string, from: number, end: "unknown" | "not-applied", KeyInput];

function historyOf(calls: readonly Call[]): History {
  const history = new History();
  for (const [process, from, end, input, output] of calls) {
    const id = history.begin(process, input, from);
    if (end === "unknown") history.unknown(id);
    else if (end === "not-applied") history.notApplied(id);
    else if (output !== undefined) history.ok(id, output, end);
  }
  return history;
}

const verdict = (calls: readonly Call[]): string => {
  const result = checkHistory(historyOf(calls));
  return result.kind === "violation" ? result.law : result.kind;
};

const get = (key: string): KeyStep => ({ kind: "get", key });
const put = (key: string, value: string): KeyStep => ({ kind: "put", key, value });
const remove = (key: string): KeyStep => ({ kind: "delete", key });
/** An answer without numbers: these laws are those of any register. */
const found = (value: string | null): KeyOutput => ({
  kind: "get",
  found: value === null ? null : { value },
});
const stored: KeyOutput = { kind: "put" };
const removed = (deleted: number): KeyOutput => ({ kind: "delete", deleted });
const won: KeyOutput = { kind: "txn", succeeded: true, responses: [{ kind: "put" }] };
const lost: KeyOutput = { kind: "txn", succeeded: false, responses: [] };
/** Answers that tell everything. */
const seen = (value: string, createRevision: number, modRevision: number, version: number): Seen => ({
  value,
  createRevision,
  modRevision,
  version,
});
const shows = (revision: number, state: Seen | null): KeyOutput => ({ kind: "get", revision, found: state });
const storedAt = (revision: number, createRevision: number, version: number): KeyOutput => ({
  kind: "put",
  revision,
  createRevision,
  version,
});

const good: Readonly<Record<string, readonly Call[]>> = {
  "one after the other": [
    ["p1", 0, 1, put("k", "a"), stored],
    ["p2", 2, 3, get("k"), found("a")],
    ["p2", 4, 5, remove("k"), removed(1)],
    ["p1", 6, 7, get("k"), found(null)],
  ],
  "a read during a write may see either": [
    ["p1", 0, 1, put("k", "a"), stored],
    ["p1", 2, 9, put("k", "b"), stored],
    ["p2", 3, 4, get("k"), found("a")],
    ["p3", 5, 6, get("k"), found("b")],
  ],
  "an answer and a question at the same time are concurrent": [
    ["p1", 0, 5, put("k", "a"), stored],
    ["p2", 5, 6, get("k"), found(null)],
  ],
  "a write of unknown outcome that never happened": [
    ["p1", 0, "unknown", put("k", "a")],
    ["p2", 5, 6, get("k"), found(null)],
  ],
  "a write of unknown outcome that happened late": [
    ["p1", 0, "unknown", put("k", "a")],
    ["p2", 5, 6, get("k"), found(null)],
    ["p2", 7, 8, get("k"), found("a")],
  ],
  "a delete of unknown outcome explains why a key is gone": [
    ["p1", 0, 1, put("k", "a"), stored],
    ["p2", 2, "unknown", remove("k")],
    ["p1", 3, 4, get("k"), found("a")],
    ["p1", 5, 6, get("k"), found(null)],
  ],
  "a version that skips over a write of unknown outcome": [
    ["p1", 0, 1, put("k", "a"), storedAt(2, 2, 1)],
    ["p2", 2, "unknown", put("k", "b")],
    ["p1", 3, 4, put("k", "c"), storedAt(4, 2, 3)],
  ],
  "a create revision of a write of unknown outcome": [
    ["p2", 2, "unknown", put("k", "b")],
    ["p1", 3, 4, put("k", "c"), storedAt(4, 3, 2)],
  ],
  "each kind of compare-and-set": [
    ["p1", 0, 1, compareAndSet("k", { absent: true }, "a"), won],
    ["p1", 2, 3, compareAndSet("k", { value: "a" }, "b"), won],
    ["p1", 4, 5, compareAndSet("k", { version: 2 }, "c"), won],
    ["p1", 6, 7, get("k"), shows(9, seen("c", 3, 7, 3))],
    ["p1", 8, 9, compareAndSet("k", { modRevision: 7 }, "d"), won],
    ["p1", 10, 11, compareAndSet("k", { modRevision: 7 }, "e"), lost],
    ["p1", 12, 13, compareAndSet("k", { absent: true }, "f"), lost],
  ],
  "a refused write that nobody saw": [
    ["p1", 0, "not-applied", put("k", "a")],
    ["p1", 1, 2, get("k"), found(null)],
  ],
};

const bad: Readonly<Record<string, readonly [law: string, calls: readonly Call[]]>> = {
  "a stale read": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), stored],
      ["p1", 2, 3, put("k", "b"), stored],
      ["p2", 4, 5, get("k"), found("a")],
    ],
  ],
  "a read that goes back in time": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), stored],
      ["p1", 2, 20, put("k", "b"), stored],
      ["p2", 3, 4, get("k"), found("b")],
      ["p3", 5, 6, get("k"), found("a")],
    ],
  ],
  "a lost update": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), storedAt(2, 2, 1)],
      ["p1", 2, 5, put("k", "b"), storedAt(3, 2, 2)],
      ["p2", 2, 5, put("k", "c"), storedAt(4, 2, 2)],
    ],
  ],
  "two winners of compare-and-set on one value": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), stored],
      ["p1", 2, 9, compareAndSet("k", { value: "a" }, "b"), won],
      ["p2", 2, 9, compareAndSet("k", { value: "a" }, "c"), won],
    ],
  ],
  "two winners of one creation": [
    "linearizability",
    [
      ["p1", 2, 9, compareAndSet("k", { absent: true }, "b"), won],
      ["p2", 2, 9, compareAndSet("k", { absent: true }, "c"), won],
    ],
  ],
  "two winners on one mod revision": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), storedAt(2, 2, 1)],
      ["p1", 2, 9, compareAndSet("k", { modRevision: 2 }, "b"), won],
      ["p2", 2, 9, compareAndSet("k", { modRevision: 2 }, "c"), won],
    ],
  ],
  "a compare-and-set that loses against nobody": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), stored],
      ["p2", 2, 3, compareAndSet("k", { value: "a" }, "b"), lost],
    ],
  ],
  "a dirty read of a write that was refused": [
    "not-applied-but-visible",
    [
      ["p1", 0, "not-applied", put("k", "a")],
      ["p2", 1, 2, get("k"), found("a")],
    ],
  ],
  "a refused compare-and-set, seen by a transaction": [
    "not-applied-but-visible",
    [
      ["p1", 0, "not-applied", compareAndSet("k", { absent: true }, "a")],
      ["p2", 1, 2, compareAndSet("k", { value: "a" }, "b"), won],
    ],
  ],
  "a value from nowhere": ["linearizability", [["p2", 1, 2, get("k"), found("a")]]],
  "a value from the future": [
    "linearizability",
    [
      ["p2", 1, 2, get("k"), found("a")],
      ["p1", 5, "unknown", put("k", "a")],
    ],
  ],
  "half of a transaction": [
    "linearizability",
    [
      [
        "p1",
        0,
        1,
        { kind: "txn", compares: [], success: [put("k", "a"), put("l", "b")], failure: [] },
        { kind: "txn", succeeded: true, responses: [{ kind: "put" }, { kind: "put" }] },
      ],
      ["p2", 2, 3, get("k"), found("a")],
      ["p2", 4, 5, get("l"), found(null)],
    ],
  ],
  "half of a transaction of unknown outcome": [
    "linearizability",
    [
      [
        "p1",
        0,
        "unknown",
        { kind: "txn", compares: [], success: [put("k", "a"), put("l", "b")], failure: [] },
      ],
      ["p2", 2, 3, get("k"), found("a")],
      ["p2", 4, 5, get("l"), found(null)],
    ],
  ],
  "a transaction that reads two moments": [
    "linearizability",
    [
      [
        "p1",
        0,
        1,
        { kind: "txn", compares: [], success: [put("k", "a"), put("l", "b")], failure: [] },
        { kind: "txn", succeeded: true, responses: [{ kind: "put" }, { kind: "put" }] },
      ],
      [
        "p2",
        0,
        9,
        { kind: "txn", compares: [], success: [get("k"), get("l")], failure: [] },
        {
          kind: "txn",
          succeeded: true,
          responses: [
            { kind: "get", found: { value: "a" } },
            { kind: "get", found: null },
          ],
        },
      ],
    ],
  ],
  "a value that rises from the dead": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), stored],
      ["p1", 2, 3, remove("k"), removed(1)],
      ["p2", 4, 5, get("k"), found("a")],
    ],
  ],
  "a delete that finds nothing of what was there": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), stored],
      ["p1", 2, 3, remove("k"), removed(0)],
    ],
  ],
  "a write of unknown outcome that was seen and then was not": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), stored],
      ["p1", 2, "unknown", put("k", "b")],
      ["p2", 3, 4, get("k"), found("b")],
      ["p2", 5, 6, get("k"), found("a")],
    ],
  ],
  "a write of unknown outcome that happens twice": [
    "linearizability",
    [
      ["p1", 0, "unknown", put("k", "a")],
      ["p2", 1, 2, get("k"), found("a")],
      ["p2", 3, 4, put("k", "b"), stored],
      ["p2", 5, 6, get("k"), found("a")],
    ],
  ],
  "a version that skips": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), storedAt(2, 2, 1)],
      ["p1", 2, 3, put("k", "b"), storedAt(4, 2, 3)],
    ],
  ],
  "a version that skips over an unknown write for which no revision is left": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), storedAt(2, 2, 1)],
      ["p2", 2, "unknown", put("k", "b")],
      ["p1", 3, 4, put("k", "c"), storedAt(3, 2, 3)],
    ],
  ],
  "an unknown write below what was known before it was asked for": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), storedAt(2, 2, 1)],
      ["p3", 2, 3, put("other", "x"), storedAt(9, 9, 1)],
      ["p2", 4, "unknown", put("k", "b")],
      ["p1", 3, 10, put("k", "c"), storedAt(8, 2, 3)],
    ],
  ],
  "a version that goes on after a delete": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), storedAt(2, 2, 1)],
      ["p1", 2, 3, remove("k"), { kind: "delete", deleted: 1, revision: 3 }],
      ["p1", 4, 5, put("k", "b"), storedAt(4, 4, 2)],
    ],
  ],
  "a create revision that changes while the key lives": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), storedAt(2, 2, 1)],
      ["p1", 2, 3, put("k", "b"), storedAt(3, 3, 2)],
    ],
  ],
  "a mod revision other than the one that was acknowledged": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), storedAt(2, 2, 1)],
      ["p2", 2, 3, get("k"), shows(5, seen("a", 2, 3, 1))],
    ],
  ],
  "one unknown write with two mod revisions": [
    "linearizability",
    [
      ["p1", 0, "unknown", put("k", "a")],
      ["p2", 2, 3, get("k"), { kind: "get", found: { value: "a", modRevision: 3 } }],
      ["p3", 2, 3, get("k"), { kind: "get", found: { value: "a", modRevision: 4 } }],
    ],
  ],
  "a read that claims a newer revision than it shows": [
    "linearizability",
    [
      ["p1", 0, 1, put("k", "a"), storedAt(2, 2, 1)],
      ["p1", 2, 9, put("k", "b"), storedAt(3, 2, 2)],
      ["p2", 2, 9, get("k"), shows(3, seen("a", 2, 2, 1))],
    ],
  ],
  "writes whose revisions contradict real time": [
    "revision-order",
    [
      ["p1", 0, 1, put("k", "a"), storedAt(7, 7, 1)],
      ["p1", 2, 3, put("l", "b"), storedAt(6, 6, 1)],
    ],
  ],
  "two writes with one revision": [
    "revision-order",
    [
      ["p1", 0, 1, put("k", "a"), storedAt(7, 7, 1)],
      ["p1", 0, 3, put("l", "b"), storedAt(7, 7, 1)],
    ],
  ],
  "a read behind what another key had shown": [
    "revision-order",
    [
      ["p1", 0, 1, get("k"), shows(7, null)],
      ["p1", 2, 3, get("l"), shows(6, null)],
    ],
  ],
};

describe("histories that are known to be good", () => {
  for (const [name, calls] of Object.entries(good)) {
    it(name, () => {
      assert.equal(verdict(calls), "linearizable");
      assertLinearizable(historyOf(calls));
    });
  }
});

describe("histories that are known to be bad", () => {
  for (const [name, [law, calls]] of Object.entries(bad)) {
    it(name, () => {
      assert.equal(verdict(calls), law);
      assert.throws(() => assertLinearizable(historyOf(calls)), new RegExp(law));
    });
  }
});

describe("what a violation tells", () => {
  it("the few operations that contradict each other, the longest prefix, what is stuck, and why", () => {
    const noise = Array.from({ length: 40 }, (_, at): Call => {
      return ["p9", 100 + at * 2, 101 + at * 2, put("k", `n${at}`), stored];
    });
    const [, stale] = bad["a stale read"]!;
    const calls: readonly Call[] = [
      ...noise,
      ...stale.map(
        ([process, from, to, ...rest]) => [process, 200 + from, 200 + Number(to), ...rest] as unknown as Call,
      ),
    ];
    const result = check(keyModel, historyOf(calls).operations());
    assert.ok(result.kind === "violation");
    assert.equal(result.prefix.length, 42);
    assert.deepEqual(
      result.stuck.map(({ input }) => input),
      [get("k")],
    );
    assert.deepEqual(
      result.core.map(({ input }) => (input.kind === "put" ? input.value : input.kind)),
      ["a", "b", "get"],
    );
    assert.match(result.text, /these 3 contradict each other/);
    assert.match(result.text, /p2 \[204\.\.205\] get k -> a/);
    assert.match(result.text, /k: value is b here, not a/);
  });

  it("an exhausted budget is neither good nor bad, and loud", () => {
    const history = historyOf(good["each kind of compare-and-set"]!);
    assert.equal(checkHistory(history, { stepsMax: 2 }).kind, "budget-exhausted");
    assert.throws(() => assertLinearizable(history, { stepsMax: 2 }), /not decided after 3 steps/);
  });
});

describe("many unknown outcomes", () => {
  /** Each of them may create k, which nobody deletes; l was deleted by the one that was invoked last. */
  const unknown = Array.from({ length: 30 }, (_, at): Call => {
    const compares = [{ key: "l", target: "version", operator: "<", operand: 100 + at } as const];
    return ["p1", 2, "unknown", { kind: "txn", compares, success: [put("k", `u${at}`)], failure: [] }];
  });
  const calls: readonly Call[] = [
    ["p2", 0, 1, put("l", "a"), storedAt(1, 1, 1)],
    ...unknown,
    ["p3", 3, "unknown", remove("l")],
    ["p2", 4, 5, get("l"), shows(50, null)],
    ["p2", 6, 7, put("k", "b"), storedAt(51, 51, 1)],
  ];

  it("of which one explains what is seen next: it is tried before those that spoil what comes later", () => {
    const result = checkHistory(historyOf(calls), { stepsMax: 1_000 });
    assert.equal(result.kind, "linearizable");
  });
});
