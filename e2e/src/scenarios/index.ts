// Every scenario, in the order in which they run.
import type { Scenario } from "../scenario.ts";
import { groundFaults } from "./ground-faults.ts";
import { ground } from "./ground.ts";

export const SCENARIOS: readonly Scenario[] = [ground, groundFaults];
