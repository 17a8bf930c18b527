// Every scenario, in the order in which they run.
import type { Scenario } from "../scenario.ts";
import { groundFaults } from "./ground-faults.ts";
import { drain } from "./drain.ts";
import { firstCell } from "./first-cell.ts";
import { ground } from "./ground.ts";
import { operatorCrash } from "./operator-crash.ts";
import { readme } from "./readme.ts";
import { replace } from "./replace.ts";
import { roll } from "./roll.ts";

export const SCENARIOS: readonly Scenario[] = [
  ground,
  readme,
  firstCell,
  replace,
  drain,
  roll,
  operatorCrash,
  groundFaults,
];
