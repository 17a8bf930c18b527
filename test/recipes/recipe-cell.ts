import { connect, type Client, type Session } from "@lockstep/client";
import assert from "node:assert/strict";
import { TestCell } from "../support/cell.ts";

/** One process of those that share a recipe. */
export interface Contender {
  readonly client: Client;
  readonly session: Session;
}

/** A cell of three members, and processes that are checked to leave nothing behind. */
export class RecipeCell {
  readonly cell: TestCell;
  readonly #open: Contender[] = [];

  private constructor(cell: TestCell) {
    this.cell = cell;
  }

  static async start(): Promise<RecipeCell> {
    return new RecipeCell(await TestCell.start(3));
  }

  stop(): Promise<void> {
    return this.cell.stop();
  }

  async contender(ttlMs = 10_000): Promise<Contender> {
    const client = await connect({ endpoints: this.cell.endpoints });
    const made = { client, session: await client.session({ ttlMs }) };
    this.#open.push(made);
    return made;
  }

  contenders(count: number, ttlMs?: number): Promise<Contender[]> {
    return Promise.all(Array.from({ length: count }, () => this.contender(ttlMs)));
  }

  /** Ends all sessions. @throws AssertionError when any key of a recipe is left. */
  async assertNothingLeft(): Promise<void> {
    const contenders = this.#open.splice(0);
    const observer = await connect({ endpoints: this.cell.endpoints });
    try {
      const { kvs } = await observer.range({ prefix: "/" }, { keysOnly: true });
      const left = kvs.map((kv) => kv.keyText);
      assert.deepEqual(left, [], "keys were left before the sessions ended");
      await Promise.all(contenders.map(({ session }) => session.close()));
    } finally {
      for (const { client } of contenders) client.close();
      observer.close();
    }
  }
}
