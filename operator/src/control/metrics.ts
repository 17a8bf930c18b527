import { Gauge } from "prom-client";
import type { Registry } from "prom-client";
import type { CoordinationCell } from "../api/types.ts";

/** What the metrics are read from. */
export interface ObservedCells {
  cells(): readonly CoordinationCell[];
}

const CONDITIONS = ["Ready", "Available", "Degraded", "Stalled", "CertificatesValid"] as const;

/** The fleet for Prometheus, read when it asks: from the statuses, so that a stand-by says the same. */
export function observeCells(registry: Registry, source: ObservedCells): void {
  const registers = [registry];
  new Gauge({
    name: "lockstep_cell_condition",
    help: "A cell's condition: 1 True, 0 False, -1 Unknown",
    labelNames: ["namespace", "cell", "condition"],
    registers,
    collect() {
      this.reset();
      for (const cell of source.cells()) {
        for (const condition of CONDITIONS) {
          const found = cell.status?.conditions?.find(({ type }) => type === condition);
          this.set({ ...labelsOf(cell), condition }, valueOf(found?.status));
        }
      }
    },
  });
  const counts: readonly [string, string, (cell: CoordinationCell) => number][] = [
    ["voters_wanted", "Voters that a cell's spec asks for", ({ spec }) => spec.voters],
    ["voters_ready", "Voters of a cell that are ready", ({ status }) => status?.readyVoters ?? 0],
    ["operation", "1 while a change of the cell is under way", ({ status }) => (status?.operation ? 1 : 0)],
  ];
  for (const [name, help, value] of counts) {
    new Gauge({
      name: `lockstep_cell_${name}`,
      help,
      labelNames: ["namespace", "cell"],
      registers,
      collect() {
        this.reset();
        for (const cell of source.cells()) this.set(labelsOf(cell), value(cell));
      },
    });
  }
}

function labelsOf({ metadata }: CoordinationCell): { readonly namespace: string; readonly cell: string } {
  return { namespace: metadata.namespace ?? "", cell: metadata.name };
}

function valueOf(status: string | undefined): number {
  if (status === "True") return 1;
  return status === "False" ? 0 : -1;
}
