import { CliError, EXIT } from "../exit-codes.ts";
import type { Terminal } from "../terminal.ts";
import type { Kubectl } from "./kubectl.ts";
import { CELLS, MEMBERS, OPERATIONS } from "./shapes.ts";
import type { CellOperationShape, CellShape } from "./shapes.ts";

export interface ActionRequest {
  readonly cell: string;
  readonly action: "Replace" | "Restart" | "TransferLeadership" | "Drain" | "Pause";
  readonly member?: string;
  readonly node?: string;
}

export interface ActionOptions {
  readonly kubectl: Kubectl;
  readonly terminal: Terminal;
  /** `-n NAMESPACE`, or nothing. */
  readonly namespace: readonly string[];
  /** 0: do not wait for it. */
  readonly waitMs: number;
}

const LOOK_MS = 1_000;

/** The cell that a member belongs to. */
export async function cellOfMember(options: ActionOptions, member: string): Promise<string> {
  const text = await options.kubectl.run(["get", MEMBERS, member, ...options.namespace, "-o", "json"]);
  const { spec } = JSON.parse(text) as { readonly spec?: { readonly cell?: string } };
  if (spec?.cell === undefined)
    throw new CliError(EXIT.failed, `${member} does not say which cell it belongs to`);
  return spec.cell;
}

/** Creates a CellOperation: the operator does it when it is safe, and says in the object how it went. */
export async function requestAction(options: ActionOptions, request: ActionRequest): Promise<number> {
  const { kubectl, terminal, namespace } = options;
  // A cell that is not there should be told by name, before anything is made.
  await kubectl.run(["get", CELLS, request.cell, ...namespace, "-o", "name"]);
  const object = {
    apiVersion: "lockstep.dev/v1alpha1",
    kind: "CellOperation",
    metadata: { generateName: `${request.action.toLowerCase()}-` },
    spec: {
      cell: request.cell,
      action: request.action,
      ...(request.member === undefined ? {} : { member: request.member }),
      ...(request.node === undefined ? {} : { node: request.node }),
    },
  };
  const created = await kubectl.run(
    ["create", ...namespace, "-f", "-", "-o", "json"],
    JSON.stringify(object),
  );
  const { name } = (JSON.parse(created) as CellOperationShape).metadata;
  terminal.err(`celloperation ${name} asks for it\n`);
  if (options.waitMs === 0) {
    terminal.out(`${name}\n`);
    return EXIT.ok;
  }
  return follow(options, name, request.cell);
}

async function follow(options: ActionOptions, name: string, cell: string): Promise<number> {
  const { kubectl, terminal, namespace, waitMs } = options;
  const deadline = terminal.now() + waitMs;
  let told = "";
  for (;;) {
    const text = await kubectl.run(["get", OPERATIONS, name, ...namespace, "-o", "json"]);
    const { status } = JSON.parse(text) as CellOperationShape;
    const step = `${status?.phase ?? "Pending"}: ${status?.message ?? "the operator has not looked at it yet"}`;
    if (step !== told) terminal.err(`${step}\n`);
    told = step;
    if (status?.phase === "Succeeded") return EXIT.ok;
    if (status?.phase === "Failed") throw new CliError(EXIT.failed, status.message ?? "it failed");
    if (terminal.now() >= deadline) {
      throw new CliError(
        EXIT.unknown,
        `${name} is not finished yet; it goes on`,
        `Look at it with \`kubectl lockstep status ${cell}\`, or withdraw it with \`kubectl delete ${OPERATIONS} ${name}\`.`,
      );
    }
    await terminal.sleep(LOOK_MS);
  }
}

/** Pausing lasts as long as its CellOperation: nothing of a spec that lives in Git is edited. */
export async function resume(options: ActionOptions, cell: string): Promise<number> {
  const { kubectl, terminal, namespace } = options;
  const listed = await kubectl.run(["get", OPERATIONS, ...namespace, "-o", "json"]);
  const { items } = JSON.parse(listed) as {
    readonly items: readonly (CellOperationShape & {
      readonly spec: { readonly cell?: string; readonly action?: string };
    })[];
  };
  const pauses = items.filter(({ spec }) => spec.cell === cell && spec.action === "Pause");
  for (const { metadata } of pauses) {
    await kubectl.run(["delete", OPERATIONS, metadata.name, ...namespace]);
    terminal.err(`celloperation ${metadata.name} withdrawn\n`);
  }
  const shown = await kubectl.run(["get", CELLS, cell, ...namespace, "-o", "json"]);
  if ((JSON.parse(shown) as CellShape).spec.paused === true) {
    throw new CliError(
      EXIT.failed,
      `${cell} is paused by its own spec.paused`,
      "Change it where its manifest lives.",
    );
  }
  if (pauses.length === 0) terminal.err(`${cell} was not paused\n`);
  return EXIT.ok;
}
