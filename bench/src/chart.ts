import type { SystemName } from "./options.ts";
import type { Labels, Results } from "./results.ts";
import type { Verdict } from "./targets.ts";

const WIDTH = 960;
const MARGIN = 24;
const BAR_ROW = 24;
const LABEL_WIDTH = 400;
const BAR_WIDTH = 440;
const PLOT_WIDTH = 440;
const PLOT_HEIGHT = 220;
const PLOT_LEFT = 56;
const PLOT_BOTTOM = 40;

/** Both themes by the reader's own setting; the colours hold their contrast in each. */
const STYLE = `
  svg { --ink: #1b1f24; --soft: #59636e; --line: #d1d9e0; --back: #ffffff;
        --lockstep: #0969da; --etcd: #bc4c00; --api: #8250df; --missed: #cf222e; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --back: #0d1117;
          --lockstep: #4493f8; --etcd: #f0883e; --api: #a371f7; --missed: #f85149; }
  }
  .back { fill: var(--back); }
  text { fill: var(--ink); font: 13px system-ui, sans-serif; }
  .soft { fill: var(--soft); font-size: 12px; }
  .title { font-size: 16px; font-weight: 600; }
  .axis { stroke: var(--line); stroke-width: 1; }
  .one { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 4 3; }
  .bar { fill: var(--lockstep); }
  .bar.missed { fill: var(--missed); }
  .must { stroke: var(--ink); stroke-width: 2; }
  polyline { fill: none; stroke-width: 2; }
  .lockstep { stroke: var(--lockstep); } .etcd { stroke: var(--etcd); } .lockstep-etcd-api { stroke: var(--api); }
  circle.lockstep { fill: var(--lockstep); } circle.etcd { fill: var(--etcd); }
  text.lockstep { fill: var(--lockstep); stroke: none; } text.etcd { fill: var(--etcd); stroke: none; }
`;

function escapeText(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function text(x: number, y: number, words: string, options = ""): string {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${options}>${escapeText(words)}</text>`;
}

function line(from: readonly [number, number], to: readonly [number, number], name: string): string {
  const [x1, y1] = from.map((value) => value.toFixed(1));
  const [x2, y2] = to.map((value) => value.toFixed(1));
  return `<line x1="${x1 ?? "0"}" y1="${y1 ?? "0"}" x2="${x2 ?? "0"}" y2="${y2 ?? "0"}" class="${name}"/>`;
}

/** Ratios from 1/16 to 64 on a logarithmic scale; what is beyond ends at the edge. */
function ratioX(ratio: number): number {
  const [low, high] = [Math.log2(1 / 16), Math.log2(64)];
  const place = (Math.log2(ratio) - low) / (high - low);
  return LABEL_WIDTH + MARGIN + Math.min(1, Math.max(0, place)) * BAR_WIDTH;
}

interface Block {
  readonly height: number;
  readonly parts: readonly string[];
}

function barRow(verdict: Verdict, y: number): readonly string[] {
  const { target, ratio = 1, must } = verdict;
  const name = target.figure === "" ? target.work : `${target.work}: ${target.figure}`;
  const [one, end] = [ratioX(1), ratioX(ratio)];
  const parts = [
    text(MARGIN + LABEL_WIDTH - 10, y + 15, name, 'text-anchor="end"'),
    `<rect x="${Math.min(one, end).toFixed(1)}" y="${String(y + 4)}" width="${Math.max(1, Math.abs(end - one)).toFixed(1)}" ` +
      `height="14" rx="2" class="bar${must === "missed" ? " missed" : ""}"><title>${escapeText(name)}: ${ratio.toFixed(2)}x of etcd</title></rect>`,
    text(WIDTH - MARGIN, y + 15, `${ratio.toFixed(ratio < 10 ? 2 : 1)}x`, 'text-anchor="end"'),
  ];
  if (target.must.kind === "ratio") {
    const at = ratioX(target.must.value);
    parts.push(line([at, y + 1], [at, y + 21], "must"));
  }
  return parts;
}

/** One bar a row, from 1 (as etcd) to Lockstep's ratio; the mark is what must be reached. */
function bars(title: string, verdicts: readonly Verdict[], top: number): Block {
  if (verdicts.length === 0) return { height: 0, parts: [] };
  const parts = [text(MARGIN, top + 16, title, 'class="title"')];
  const first = top + 46;
  const bottom = first + verdicts.length * BAR_ROW;
  for (const tick of [1 / 16, 1 / 4, 1, 4, 16, 64]) {
    const x = ratioX(tick);
    parts.push(line([x, first - 4], [x, bottom], tick === 1 ? "one" : "axis"));
    const label = tick < 1 ? `1/${String(1 / tick)}` : String(tick);
    parts.push(text(x, first - 10, label, 'class="soft" text-anchor="middle"'));
  }
  verdicts.forEach((verdict, index) => parts.push(...barRow(verdict, first + index * BAR_ROW)));
  return { height: bottom - top + 24, parts };
}

interface Series {
  readonly system: SystemName;
  readonly points: readonly (readonly [x: number, y: number])[];
}

interface Plot {
  readonly title: string;
  readonly xLabel: string;
  readonly series: readonly Series[];
}

function decades(values: readonly number[]): readonly number[] {
  const low = Math.floor(Math.log10(Math.min(...values)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  return Array.from({ length: high - low + 1 }, (_, index) => low + index);
}

function decadeLabel(exponent: number): string {
  const value = 10 ** exponent;
  if (value >= 1e6) return `${String(value / 1e6)}M`;
  if (value >= 1e3) return `${String(value / 1e3)}k`;
  return value >= 1 ? String(value) : value.toFixed(-exponent);
}

/** Both axes logarithmic: a line that stays flat is a cost that does not grow. */
function plot({ title, xLabel, series }: Plot, left: number, top: number): readonly string[] {
  const all = series.flatMap((one) => one.points);
  if (all.length === 0) return [];
  const [xs, ys] = [decades(all.map(([x]) => x)), decades(all.map(([, y]) => y))];
  const place = (value: number, ticks: readonly number[]): number =>
    (Math.log10(value) - (ticks[0] ?? 0)) / ((ticks.at(-1) ?? 1) - (ticks[0] ?? 0));
  const inner = { width: PLOT_WIDTH - PLOT_LEFT - 16, height: PLOT_HEIGHT - PLOT_BOTTOM - 30 };
  const atX = (value: number): number => left + PLOT_LEFT + place(value, xs) * inner.width;
  const atY = (value: number): number => top + 30 + (1 - place(value, ys)) * inner.height;
  const parts = [text(left, top + 14, title, 'class="title"')];
  for (const tick of xs) {
    const x = atX(10 ** tick);
    parts.push(line([x, top + 30], [x, top + 30 + inner.height], "axis"));
    parts.push(text(x, top + 46 + inner.height, decadeLabel(tick), 'class="soft" text-anchor="middle"'));
  }
  for (const tick of ys) {
    const y = atY(10 ** tick);
    parts.push(line([left + PLOT_LEFT, y], [left + PLOT_LEFT + inner.width, y], "axis"));
    parts.push(text(left + PLOT_LEFT - 6, y + 4, decadeLabel(tick), 'class="soft" text-anchor="end"'));
  }
  parts.push(text(left + PLOT_LEFT, top + PLOT_HEIGHT - 4, xLabel, 'class="soft"'));
  for (const { system, points } of series) {
    const corners = points.map(([x, y]) => `${atX(x).toFixed(1)},${atY(y).toFixed(1)}`);
    parts.push(`<polyline points="${corners.join(" ")}" class="${system}"/>`);
    for (const [x, y] of points) {
      parts.push(`<circle cx="${atX(x).toFixed(1)}" cy="${atY(y).toFixed(1)}" r="3" class="${system}"/>`);
    }
  }
  return parts;
}

function seriesOf<T extends { readonly system: SystemName }>(
  items: readonly T[],
  x: (item: T) => number,
  y: (item: T) => number,
): readonly Series[] {
  return [...new Set(items.map((item) => item.system))].flatMap((system) => {
    const points = items
      .filter((item) => item.system === system)
      .map((item) => [x(item), y(item)] as const)
      .filter(([at, value]) => at > 0 && value > 0);
    return points.length === 0 ? [] : [{ system, points }];
  });
}

function plotsOf({ growth, sessions }: Results): readonly Plot[] {
  const largest = (bytes: readonly number[]): number => Math.max(0, ...bytes) / 1e6;
  const stages = sessions.flatMap(({ system, stages: own }) => own.map((stage) => ({ ...stage, system })));
  const [alone, watched] = [
    stages.filter((stage) => stage.kind === "sessions"),
    stages.filter((stage) => stage.kind === "watches"),
  ];
  const leader = (stage: { readonly residentBytes: readonly number[] }): number =>
    (stage.residentBytes[0] ?? 0) / 1e6;
  const plots: readonly Plot[] = [
    {
      ...{ title: "put p50, ms, 64 in flight", xLabel: "keys" },
      series: seriesOf(
        growth,
        (point) => point.keys,
        (point) => point.putP50Ms,
      ),
    },
    {
      ...{ title: "linearizable gets a second, 1,000 in flight", xLabel: "keys" },
      series: seriesOf(
        growth,
        (point) => point.keys,
        (point) => point.getsPerSecond,
      ),
    },
    {
      ...{ title: "resident MB of the largest member", xLabel: "keys" },
      series: seriesOf(
        growth,
        (point) => point.keys,
        (point) => largest(point.residentBytes),
      ),
    },
    {
      ...{ title: "renewals a second", xLabel: "sessions" },
      series: seriesOf(
        alone,
        (stage) => stage.sessions,
        (stage) => stage.renewalsPerSecond,
      ),
    },
    {
      ...{ title: "resident MB of the leader", xLabel: "sessions" },
      series: seriesOf(alone, (stage) => stage.sessions, leader),
    },
    {
      ...{ title: "resident MB of the leader", xLabel: "watches, beside all sessions" },
      series: seriesOf(watched, (stage) => stage.watches, leader),
    },
    {
      ...{ title: "put p50 of a watched key, ms", xLabel: "watches" },
      series: seriesOf(
        watched,
        (stage) => stage.watches,
        (stage) => stage.putP50Ms,
      ),
    },
  ];
  return plots.filter(({ series }) => series.length > 0);
}

function curves(results: Results, labels: Labels, top: number): Block {
  const plots = plotsOf(results);
  if (plots.length === 0) return { height: 0, parts: [] };
  const parts = [
    text(MARGIN, top + 16, "Growth, both axes logarithmic", 'class="title"'),
    text(MARGIN + 340, top + 16, labels.lockstep, 'class="lockstep"'),
    text(MARGIN + 440, top + 16, labels.etcd, 'class="etcd"'),
  ];
  plots.forEach((one, index) => {
    const left = MARGIN + (index % 2) * (PLOT_WIDTH + 24);
    parts.push(...plot(one, left, top + 40 + Math.floor(index / 2) * (PLOT_HEIGHT + 24)));
  });
  return { height: 40 + Math.ceil(plots.length / 2) * (PLOT_HEIGHT + 24), parts };
}

/** In two lines, parted at a comma near the middle. */
function wrapped(facts: string): readonly string[] {
  const at = facts.indexOf(", ", facts.length / 2);
  return at < 0 ? [facts] : [facts.slice(0, at + 1), facts.slice(at + 2)];
}

/**
 * The result as an SVG that needs nothing else: ratios as bars, growth as lines, light or dark as the reader has it.
 * Rows without a ratio (absolute targets without etcd beside them) are in the text only.
 */
export function renderChart(
  results: Results,
  verdicts: readonly Verdict[],
  about: { readonly labels: Labels; readonly facts: string },
): string {
  const compared = verdicts.filter((verdict) => verdict.ratio !== undefined && verdict.ratio > 0);
  const parts = [text(MARGIN, 34, `${about.labels.lockstep} by ${about.labels.etcd}`, 'class="title"')];
  wrapped(about.facts).forEach((words, index) => {
    parts.push(text(MARGIN, 54 + index * 16, words, 'class="soft"'));
  });
  let top = 100;
  const add = (block: Block): void => {
    parts.push(...block.parts);
    top += block.height;
  };
  const higher = compared.filter((verdict) => verdict.target.better === "higher");
  const lower = compared.filter((verdict) => verdict.target.better === "lower");
  add(bars("Throughput: longer to the right is better; the mark is what must be reached", higher, top));
  add(bars("Latency, time and memory: further to the left is better", lower, top));
  add(curves(results, about.labels, top));
  const height = Math.max(top, 100);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${String(WIDTH)} ${String(height)}" role="img">`,
    `<title>${escapeText(`${about.labels.lockstep} and ${about.labels.etcd} under the same load`)}</title>`,
    `<style>${STYLE}</style>`,
    `<rect width="${String(WIDTH)}" height="${String(height)}" class="back"/>`,
    ...parts,
    "</svg>",
    "",
  ].join("\n");
}
