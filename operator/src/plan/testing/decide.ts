import assert from "node:assert/strict";
import type { Condition } from "../../api/types.ts";
import { plan } from "../plan.ts";
import { toStamp } from "../time.ts";
import type { Decision } from "../types.ts";
import { NOW_MS, scene } from "./scene.ts";
import type { Scene, SceneMember } from "./scene.ts";

export const ago = (minutes: number): string => toStamp(NOW_MS - minutes * 60_000);

export function decide(from: Scene): Decision {
  return plan(scene(from));
}

export function conditionOf(decision: Decision, type: string): Condition {
  const found = decision.status.conditions?.find((each) => each.type === type);
  assert.ok(found !== undefined, `there is no condition ${type}`);
  return found;
}

/** What a decision comes to, in a word or two. */
export function gist({ action, status }: Decision): string {
  if (action === undefined) {
    return status.operation === undefined ? "nothing" : `${status.operation.kind}/${status.operation.step}`;
  }
  return "member" in action ? `${action.kind} ${action.member}` : action.kind;
}

export const HEALTHY: Readonly<Record<"a" | "b" | "c", SceneMember>> = {
  a: { is: "leader" },
  b: { is: "voter" },
  c: { is: "voter" },
};
