import type { Revision } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { NamespaceId } from "../machine/types.ts";
import { SharedRevision } from "./ring.ts";
import type { EventRing } from "./ring.ts";
import type { HistorySource } from "./types.ts";

/** Consecutive revisions of one namespace, read for catching up. */
export interface Stretch {
  readonly revisions: readonly SharedRevision[];
  /** The revision after the last one covered. */
  readonly next: Revision;
  readonly events: number;
  readonly bytes: number;
}

export interface StretchRequest {
  readonly namespaceId: NamespaceId;
  readonly from: Revision;
  /** Present revision of the hub: nothing above it exists. */
  readonly to: Revision;
  /** About how many events; a revision is never split. */
  readonly eventsMax: number;
  readonly bytesMax: number;
}

/** Revisions of other namespaces that one read skips in the ring. */
const SCAN_MAX = 16 * 1_024;

/** Out of the ring when it covers `from` (the objects that live watchers got), else out of history. */
export function readStretch(ring: EventRing, source: HistorySource, request: StretchRequest): Stretch {
  const { namespaceId, from, to } = request;
  assert(from <= to, "there is something to catch up with", { from, to });
  if (from > ring.floor) return readRing(ring, request);
  const { events, next } = source.history({ namespaceId, from, to, limit: request.eventsMax });
  assert(next > from, "history advances", { from, next });
  const revisions: SharedRevision[] = [];
  let count = 0;
  let bytes = 0;
  for (const revisionEvents of events) {
    const shared = new SharedRevision(revisionEvents);
    revisions.push(shared);
    count += shared.events.length;
    bytes += shared.bytes;
  }
  return { revisions, next, events: count, bytes };
}

function readRing(ring: EventRing, request: StretchRequest): Stretch {
  const { namespaceId, from, to, eventsMax, bytesMax } = request;
  const revisions: SharedRevision[] = [];
  let events = 0;
  let bytes = 0;
  let next = from;
  const first = ring.find(from);
  for (let position = first; ; position++) {
    const item = ring.at(position);
    if (item === undefined) {
      next = (to + 1) as Revision;
      break;
    }
    if (events >= eventsMax || bytes >= bytesMax || position - first >= SCAN_MAX) break;
    next = (item.revision + 1) as Revision;
    if (item.namespaceId !== namespaceId) continue;
    revisions.push(item);
    events += item.events.length;
    bytes += item.bytes;
  }
  return { revisions, next, events, bytes };
}
