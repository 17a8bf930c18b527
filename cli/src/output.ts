import Table from "cli-table3";
import { NO_LEASE_ID, type KeyValue } from "@lockstep/client";
import { leaseText } from "./json.ts";
import type { Terminal } from "./terminal.ts";

export type OutputFormat = "table" | "json";

const CELL_CHARACTERS_MAX = 60;

/** Rows under headings, without lines: readable by people, and by awk. */
export function formatTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const table = new Table({
    head: [...head],
    chars: {
      top: "",
      "top-mid": "",
      "top-left": "",
      "top-right": "",
      bottom: "",
      "bottom-mid": "",
      "bottom-left": "",
      "bottom-right": "",
      left: "",
      "left-mid": "",
      mid: "",
      "mid-mid": "",
      right: "",
      "right-mid": "",
      middle: "  ",
    },
    style: { head: [], border: [], "padding-left": 0, "padding-right": 0 },
  });
  table.push(...rows.map((row) => [...row]));
  return `${table
    .toString()
    .split("\n")
    .map((line) => line.trimEnd())
    .join("\n")}\n`;
}

/** Text for a table's cell: UTF-8 cut to fit, or a note about the bytes. */
export function cellText(bytes: Uint8Array): string {
  const text = utf8(bytes);
  if (text === undefined) return `<${String(bytes.length)} bytes>`;
  const oneLine = text.replace(/[\u0000-\u001f\u007f]/g, (character) =>
    JSON.stringify(character).slice(1, -1),
  );
  return oneLine.length <= CELL_CHARACTERS_MAX ? oneLine : `${oneLine.slice(0, CELL_CHARACTERS_MAX - 1)}…`;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** @returns undefined when the bytes are not UTF-8. */
export function utf8(bytes: Uint8Array): string | undefined {
  try {
    return decoder.decode(bytes);
  } catch {
    return undefined;
  }
}

export const KEY_VALUE_HEAD: readonly string[] = ["KEY", "VALUE", "VERSION", "CREATED", "MODIFIED", "LEASE"];

export function keyValueRow(kv: KeyValue): string[] {
  return [
    cellText(kv.key),
    cellText(kv.value),
    String(kv.version),
    String(kv.createRevision),
    String(kv.modRevision),
    kv.leaseId === NO_LEASE_ID ? "-" : leaseText(kv.leaseId),
  ];
}

/** Prints a result: rows for people, one JSON document for programs. */
export function print(
  terminal: Terminal,
  format: OutputFormat,
  result: {
    readonly json: unknown;
    readonly text: () => string;
  },
): void {
  terminal.out(format === "json" ? `${JSON.stringify(result.json)}\n` : result.text());
}

export function bytesText(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? String(value) : value.toFixed(1)} ${units[unit] ?? ""}`;
}

export function durationText(ms: number): string {
  return ms >= 1_000 ? `${(ms / 1_000).toFixed(ms >= 10_000 ? 0 : 1)} s` : `${String(Math.round(ms))} ms`;
}
