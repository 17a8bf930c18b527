import type { Stage } from "./load-report.ts";
import type { Labels, Results } from "./results.ts";
import { median } from "./table.ts";

/** Of sessions or watches, for a figure each to say something. */
const COUNT_MIN = 50_000;

const megabytes = (bytes: number): string => Math.round(bytes / 1e6).toLocaleString("en");
const whole = (value: number | undefined): string =>
  value === undefined ? "-" : Math.round(value).toLocaleString("en");
const millis = (value: number | undefined): string => (value === undefined ? "-" : value.toFixed(2));

/** Rows under a header; every column as wide as it needs. */
function grid(rows: readonly (readonly string[])[]): readonly string[] {
  const columns = Math.max(...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  return rows.map((row) =>
    `  ${row
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join("   ")}`.trimEnd(),
  );
}

function failoverLines({ failover }: Results, labels: Labels): readonly string[] {
  if (failover.length === 0) return [];
  const rows = [["", "kills", "median", "worst", "without a kill", "errors"]];
  for (const system of new Set(failover.map((one) => one.system))) {
    const own = failover.filter((one) => one.system === system);
    const gaps = own.flatMap((one) => one.gapMs ?? []);
    if (gaps.length === 0) continue;
    rows.push([
      labels[system],
      String(gaps.length),
      `${whole(median(gaps))} ms`,
      `${whole(Math.max(...gaps))} ms`,
      `${whole(median(own.flatMap((one) => one.gapBeforeMs ?? [])))} ms`,
      whole(own.reduce((sum, one) => sum + (one.errors ?? 0), 0)),
    ]);
  }
  return [
    "",
    "longest time without an acknowledged put around a kill -9 of the leader, 64 clients",
    ...grid(rows),
  ];
}

function largeLines({ large }: Results, labels: Labels): readonly string[] {
  const [first] = large;
  if (first === undefined) return [];
  const rows = [["", "fill, keys/s", "resident MB, each member", "restart to first read"]];
  for (const { system, keysPerSecond, residentBytes, restartMs } of large) {
    rows.push([
      labels[system],
      whole(keysPerSecond),
      residentBytes.map(megabytes).join(" "),
      restartMs === undefined ? "-" : `${(restartMs / 1000).toFixed(2)} s`,
    ]);
  }
  return ["", `${whole(first.keys)} keys`, ...grid(rows)];
}

/**
 * What each session, or each watch, cost since the stage of its kind before, in bytes; undefined where that tells
 * nothing. Not since the first: the caches and write buffers that fill with the first puts are no part of a session.
 */
export function bytesEach(stage: Stage, stages: readonly Stage[]): number | undefined {
  const base = stages
    .slice(0, stages.indexOf(stage))
    .findLast((one) => one.kind === stage.kind && one !== stage);
  const now = stage.residentBytes[0];
  const then = base?.residentBytes[0];
  if (base === undefined || now === undefined || then === undefined) return undefined;
  const more = stage.sessions + stage.watches - base.sessions - base.watches;
  // Below, the garbage of a runtime outweighs what is measured.
  return more < COUNT_MIN ? undefined : (now - then) / more;
}

const SESSIONS_WANTED = 1_000_000;
const WATCHES_WANTED = 2_000_000;

/**
 * What a leader with a million sessions and two million watches would have by the slope of the curve, in bytes;
 * undefined: it got there, or the curve is too short to tell.
 */
export function estimateBytes(stages: readonly Stage[]): number | undefined {
  const last = stages.at(-1);
  const full = stages.findLast((one) => one.kind === "sessions");
  const now = last?.residentBytes[0];
  if (last === undefined || full === undefined || now === undefined) return undefined;
  if (last.sessions >= SESSIONS_WANTED && last.watches >= WATCHES_WANTED) return undefined;
  const [session, watch] = [bytesEach(full, stages), bytesEach(last, stages)];
  if (last.kind !== "watches" || session === undefined || watch === undefined) return undefined;
  return now + (SESSIONS_WANTED - last.sessions) * session + (WATCHES_WANTED - last.watches) * watch;
}

function sessionsLines({ sessions }: Results, labels: Labels): readonly string[] {
  const lines: string[] = [];
  for (const { system, stages, watchesLeftOut, failure } of sessions) {
    lines.push("", `sessions and watches, ${labels[system]}`);
    const header = [
      "sessions",
      "watches",
      "leader MB",
      "bytes each",
      "opened/s",
      "renewals/s",
      "of a core",
      "log entries",
      "put/s",
      "put p50",
    ];
    const rows = [[...header, "put p99", "errors"]];
    for (const stage of stages) {
      rows.push([
        whole(stage.sessions),
        whole(stage.watches),
        megabytes(stage.residentBytes[0] ?? 0),
        whole(bytesEach(stage, stages)),
        whole(stage.openedPerSecond),
        stage.renewalsPerSecond === 0 ? "-" : whole(stage.renewalsPerSecond),
        whole(stage.renewalsPerCore),
        whole(stage.renewalLogEntries),
        whole(stage.putsPerSecond),
        millis(stage.putP50Ms),
        millis(stage.putP99Ms),
        whole(stage.errors),
      ]);
    }
    lines.push(...grid(rows));
    if (watchesLeftOut > 0) {
      lines.push(`  ${whole(watchesLeftOut)} watches more were wanted: a member has no flag to take them`);
    }
    const estimate = estimateBytes(stages);
    if (estimate !== undefined) {
      lines.push(
        `  by these figures ${whole(SESSIONS_WANTED)} sessions and ${whole(WATCHES_WANTED)} watches would take ${megabytes(estimate)} MB`,
      );
    }
    if (failure !== undefined) lines.push(`  ended before its end: ${failure}`);
  }
  return lines;
}

function growthLines({ growth }: Results, labels: Labels): readonly string[] {
  if (growth.length === 0) return [];
  const header = ["", "keys", "put/s", "put p50", "put p99", "get/s", "get p50", "get p99", "fill/s"];
  const rows = [[...header, "MB, largest member", "errors"]];
  for (const point of growth) {
    rows.push([
      labels[point.system],
      whole(point.keys),
      whole(point.putsPerSecond),
      millis(point.putP50Ms),
      millis(point.putP99Ms),
      whole(point.getsPerSecond),
      millis(point.getP50Ms),
      millis(point.getP99Ms),
      whole(point.fillPerSecond),
      megabytes(Math.max(0, ...point.residentBytes)),
      whole(point.errors),
    ]);
  }
  return ["", "put, 64 in flight, and linearizable get, 1,000 in flight, as the keys grow", ...grid(rows)];
}

function stormLines({ storm }: Results): readonly string[] {
  if (storm.length === 0) return [];
  const rows = [["", "p50", "p99", "all", "errors"]];
  for (const one of storm) {
    rows.push([
      `${whole(one.streams)} streams, ${whole(one.connections)} connections`,
      `${whole(one.p50Ms)} ms`,
      `${whole(one.p99Ms)} ms`,
      `${whole(one.maxMs)} ms`,
      whole(one.errors),
    ]);
  }
  return ["", "served again after the leader of all of them was killed, Lockstep", ...grid(rows)];
}

function startupLines({ startup }: Results): readonly string[] {
  if (startup.length === 0) return [];
  const rows = [["", "import", "thread up", "connected", "first answer", "all", "fastest", "slowest"]];
  for (const { where, parts, fastestMs, slowestMs } of startup) {
    if (parts === undefined) continue;
    const { importMs, threadMs, connectedMs, firstAnswerMs, totalMs } = parts;
    const times = [importMs, threadMs, connectedMs, firstAnswerMs, totalMs, fastestMs, slowestMs];
    const name = where === "thread" ? "with its thread" : "worker: false";
    rows.push([name, ...times.map((ms) => `${ms?.toFixed(1) ?? "-"} ms`)]);
  }
  return [
    "",
    "a program begins, Lockstep: medians of each part, from import to the first answer",
    ...grid(rows),
  ];
}

function locksLines({ locks }: Results): readonly string[] {
  const [one] = locks;
  if (one?.report === undefined) return [];
  const { unwatched, watched, roundTrip, handOvers } = one.report;
  const held = [
    ["", "locks", "acquired/s", "heap each", "resident each", "idle, of a core", "of which a lock"],
  ];
  for (const [name, idle] of [
    ["watchKey: false", unwatched],
    ["watched", watched],
  ] as const) {
    held.push([
      name,
      whole(idle.locks),
      whole(idle.acquiredPerSecond),
      `${whole(idle.heapBytesEach)} B`,
      `${whole(idle.residentBytesEach)} B`,
      `${(idle.idleCoreShare * 100).toFixed(2)} %`,
      `${((idle.idleCoreShare * 1e6) / idle.locks).toFixed(2)} µs/s`,
    ]);
  }
  const passed = [["", "p50", "p99"]];
  for (const { what, p50Ms, p99Ms } of [roundTrip, ...handOvers]) {
    passed.push([what === "put" ? "a put, to compare" : what, `${millis(p50Ms)} ms`, `${millis(p99Ms)} ms`]);
  }
  return [
    "",
    "locks that one process only holds, over one session, Lockstep",
    ...grid(held),
    "",
    "hand-over, Lockstep: from the call of release to the next owner's return",
    ...grid(passed),
  ];
}

function stallLines({ table, large }: Results): readonly string[] {
  const rows = [["", "max", "p99.99"]];
  const add = (
    what: string,
    stall: { readonly maxMs: number; readonly p9999Ms: number | undefined },
  ): void => {
    const { maxMs, p9999Ms } = stall;
    rows.push([
      what,
      `${maxMs.toFixed(0)} ms`,
      p9999Ms === undefined ? "not told" : `${p9999Ms.toFixed(0)} ms`,
    ]);
  };
  for (const { workload, round, stall, system } of table) {
    if (workload === "put-1000" && stall !== undefined && system === "lockstep") {
      add(`put-1000, round ${String(round)}`, stall);
    }
  }
  for (const { keys, stall } of large) if (stall !== undefined) add(`fill of ${whole(keys)} keys`, stall);
  return rows.length === 1 ? [] : ["", "how long the leader's event loop was away, Lockstep", ...grid(rows)];
}

function failureLines(results: Results): readonly string[] {
  const failed = [
    ...results.failover.flatMap((one) =>
      one.failure === undefined ? [] : [["failover", one.failure] as const],
    ),
    ...results.large.flatMap((one) => (one.failure === undefined ? [] : [["large", one.failure] as const])),
    ...results.storm.flatMap((one) => (one.failure === undefined ? [] : [["storm", one.failure] as const])),
    ...results.startup.flatMap((one) =>
      one.failure === undefined ? [] : [["startup", one.failure] as const],
    ),
    ...results.locks.flatMap((one) => (one.failure === undefined ? [] : [["locks", one.failure] as const])),
  ];
  return failed.map(([suite, failure]) => `  FAILED: ${suite}: ${failure}`);
}

/** What the suites beside the table found, for people. */
export function renderSuites(results: Results, labels: Labels): string {
  return [
    ...failoverLines(results, labels),
    ...largeLines(results, labels),
    ...stallLines(results),
    ...sessionsLines(results, labels),
    ...growthLines(results, labels),
    ...stormLines(results),
    ...startupLines(results),
    ...locksLines(results),
    ...failureLines(results),
  ].join("\n");
}
