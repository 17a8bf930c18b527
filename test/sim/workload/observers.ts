/** Who looks at an election from outside: what it is told is the truth, in order, and sooner or later all of it. */
import type { LeaderState } from "@lockstep/client";
import { judgeRejection } from "../checkers/rejections.ts";
import { describeResource, type Resource } from "../checkers/resources.ts";
import { settle, type Connection } from "./connection.ts";

/** In a cell that is well, whoever looks knows who leads within this time. */
const SEEN_US_MAX = 30_000_000;
const LOOK_MS = 500;

/** Observes one election over one connection, until {@link finish}. */
export class LeaderObserver {
  readonly #connection: Connection;
  readonly #election: Resource;
  readonly #stop = new AbortController();
  /** The term told last; undefined: nobody leads, or nothing was told yet. */
  #seen: number | undefined;
  #highest = 0;
  #over = false;

  constructor(connection: Connection, election: Resource) {
    this.#connection = connection;
    this.#election = election;
    void settle(this.#observe()).then((settled) => {
      this.#over = true;
      if (!settled.ok)
        judgeRejection(settled.error, `observation by ${connection.host}`, connection.tools.reporter);
    });
  }

  /** Once the cell is well it stays until it has seen who leads now. */
  async finish(): Promise<void> {
    const { context, tools, host } = this.#connection;
    const sinceUs = this.#connection.nowUs;
    const book = tools.claims.book(this.#election);
    while (!this.#over && tools.health.healedAtUs !== undefined && this.#seen !== book.first?.token) {
      if (this.#connection.nowUs > Math.max(sinceUs, tools.health.healedAtUs) + SEEN_US_MAX) {
        tools.reporter.violation(
          "I11-observed",
          `${host} sees ${String(this.#seen)} lead in ${describeResource(this.#election)}, and it is ${String(book.first?.token)}`,
        );
      }
      await context.sleep(LOOK_MS);
    }
    this.#stop.abort();
  }

  async #observe(): Promise<void> {
    const election = this.#connection.client.election(this.#election.name);
    for await (const leader of election.observe({ signal: this.#stop.signal })) this.#told(leader);
  }

  #told(leader: LeaderState | undefined): void {
    const { tools, host } = this.#connection;
    this.#seen = leader?.term;
    if (leader === undefined) return;
    const { term, leaseId } = leader;
    const what = `${host} is told that lease ${leaseId} leads in ${describeResource(this.#election)} with term ${String(term)}`;
    if (term < this.#highest) {
      tools.reporter.violation("I11-observed", `${what}, after ${String(this.#highest)}`);
    }
    if (tools.claims.ordinal(this.#election, { token: term, leaseId }) === undefined) {
      tools.reporter.violation("I11-observed", `${what}, and it never did`);
    }
    this.#highest = term;
    tools.reporter.count("leaders observed");
  }
}
