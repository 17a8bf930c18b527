// Every scenario, in the order in which they run.
import type { Scenario } from "../scenario.ts";
import { apiserver } from "./apiserver.ts";
import { badInput } from "./bad-input.ts";
import { certificates } from "./certificates.ts";
import { deletion } from "./deletion.ts";
import { drain } from "./drain.ts";
import { firstCell } from "./first-cell.ts";
import { groundFaults } from "./ground-faults.ts";
import { ground } from "./ground.ts";
import { killMemberScenario } from "./kill-member.ts";
import { loseNode } from "./lose-node.ts";
import { namespaces } from "./namespaces.ts";
import { operatorCrash } from "./operator-crash.ts";
import { partition } from "./partition.ts";
import { quorumLoss } from "./quorum-loss.ts";
import { readme } from "./readme.ts";
import { replaceLarge } from "./replace-large.ts";
import { replace } from "./replace.ts";
import { roll } from "./roll.ts";
import { twoOperators } from "./two-operators.ts";
import { upgrade } from "./upgrade.ts";
import { volumes } from "./volumes.ts";

export const SCENARIOS: readonly Scenario[] = [
  ground,
  readme,
  firstCell,
  replace,
  drain,
  roll,
  operatorCrash,
  badInput,
  replaceLarge,
  killMemberScenario,
  partition,
  loseNode,
  volumes,
  deletion,
  certificates,
  apiserver,
  twoOperators,
  upgrade,
  quorumLoss,
  namespaces,
  groundFaults,
];
