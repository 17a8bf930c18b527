/** A child process of a campaign: runs the seeds that it is told, one after the other. */
import { assertCanaryInPlace } from "../canaries/patching.ts";
import { runSeed } from "../simulation.ts";
import type { FromWorker, ToWorker } from "./campaign.ts";

assertCanaryInPlace(process.env);

const tell = (message: FromWorker): void => {
  process.send?.(message);
};

process.on("message", ({ seed }: ToWorker) => {
  runSeed({ seed }).then(
    ({ violation, coverage, simulatedSeconds }) => {
      tell({
        ...{ kind: "done", seed, coverage, simulatedSeconds },
        ...(violation === undefined ? {} : { law: violation.law, text: violation.message }),
      });
    },
    (error: unknown) => {
      throw error;
    },
  );
});
process.on("disconnect", () => process.exit(0));
tell({ kind: "ready" });
