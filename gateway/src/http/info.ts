import type { CoordinatorInfo } from "../coordinator/index.ts";
import type { Json } from "./json.ts";

/** The body of `GET /v1/info`. */
export function leaderJson({ cellId, memberId, term, revision, leader }: CoordinatorInfo): Json {
  return { cellId, memberId, term, revision, leader: leader ?? null };
}
