/** Forgets history, to within a drawn distance of the newest revision. */
import type { ActorContext } from "../contract.ts";
import { withConnections } from "./connection.ts";
import type { Tools } from "./tools.ts";

export async function runCompactor(context: ActorContext, tools: Tools): Promise<void> {
  const { plan, truth, compactions, reporter } = tools;
  await withConnections(context, tools, async (connection) => {
    while (!connection.over) {
      await context.sleep(context.dice.exponential(plan.compactionSeconds * 1_000));
      if (context.stopping) return;
      const revision = truth.revision - context.dice.between(0, plan.retainedRevisions);
      if (revision <= compactions.highest) continue;
      compactions.attempt(revision);
      const answer = await connection.call({
        what: `compact to ${String(revision)}`,
        send: (client) => client.compact(revision, { deadlineMs: plan.deadlineMs }),
      });
      if (answer.ok) {
        reporter.count("compactions");
      } else if (answer.error.code === "future-revision") {
        reporter.violation("I8-stale", `compact to ${revision}: in the future, and it was committed before`);
      }
    }
  });
}
