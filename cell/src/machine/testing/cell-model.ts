import type { FailureCode } from "@lockstep/gateway/coordinator";
import type { Command, CommandOutcome, MachineSettings } from "../types.ts";
import type { Counters } from "./model.ts";
import { Model } from "./model.ts";

const DONE: CommandOutcome = { ok: true, result: undefined, replayed: false };

/** The dumb twin of a whole cell: a twin for each namespace, all counting from the same counters. */
export class CellModel {
  readonly counters: Counters = { revision: 1, nextLease: 1, nextClient: 1 };
  readonly namespaces: Map<number, { readonly name: string; readonly uid: string; readonly model: Model }> =
    new Map<number, { readonly name: string; readonly uid: string; readonly model: Model }>();
  private readonly settings: MachineSettings;
  private nextId = 1;

  constructor(settings: MachineSettings) {
    this.settings = settings;
    this.create("default", "");
  }

  apply(command: Command, term: number): CommandOutcome | { readonly ok: false; readonly code: FailureCode } {
    if (command.kind === "create-namespace") {
      const present = this.find(command.name);
      if (present !== undefined)
        return present.uid === command.uid ? DONE : { ok: false, code: "namespace-exists" };
      if (this.namespaces.size >= this.settings.namespacesMax)
        return { ok: false, code: "too-many-namespaces" };
      this.create(command.name, command.uid);
      return DONE;
    }
    if (command.kind === "delete-namespace") {
      if (command.name === "default") return { ok: false, code: "invalid-argument" };
      const present = this.find(command.name);
      if (present === undefined) return { ok: false, code: "namespace-not-found" };
      if (present.uid !== command.uid) return { ok: false, code: "namespace-exists" };
      this.namespaces.delete(present.id);
      return DONE;
    }
    if (command.kind === "format-version") return DONE;
    const namespace = this.namespaces.get(command.namespaceId);
    if (namespace !== undefined) return namespace.model.apply(command, term);
    return command.kind === "client" ? { ok: false, code: "namespace-not-found" } : DONE;
  }

  private find(name: string): { readonly id: number; readonly uid: string } | undefined {
    for (const [id, namespace] of this.namespaces) {
      if (namespace.name === name) return { id, uid: namespace.uid };
    }
    return undefined;
  }

  private create(name: string, uid: string): void {
    this.namespaces.set(this.nextId++, { name, uid, model: new Model(this.settings, this.counters) });
  }
}
