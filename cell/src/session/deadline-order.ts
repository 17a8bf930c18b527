/** Wider spans of deadlines (a very late tick) are sorted by comparison. */
const SPAN_MS_MAX = 65_536;

/**
 * Orders slots by deadline, to the millisecond, stably, in time linear in their number: a hundred thousand leases may
 * end in one tick.
 */
export function orderByDeadline(slots: readonly number[], deadlineMs: Float64Array): readonly number[] {
  if (slots.length < 2) return slots;
  let first = Infinity;
  let last = -Infinity;
  for (const slot of slots) {
    const deadline = Math.floor(deadlineMs[slot] ?? 0);
    if (deadline < first) first = deadline;
    if (deadline > last) last = deadline;
  }
  if (last - first >= SPAN_MS_MAX) {
    return slots.toSorted((a, b) => (deadlineMs[a] ?? 0) - (deadlineMs[b] ?? 0));
  }
  // Counting sort: `starts[ms]` is where the slots of that millisecond go.
  const starts = new Uint32Array(last - first + 2);
  for (const slot of slots) {
    const at = Math.floor(deadlineMs[slot] ?? 0) - first + 1;
    starts[at] = (starts[at] ?? 0) + 1;
  }
  for (let at = 1; at < starts.length; at += 1) starts[at] = (starts[at] ?? 0) + (starts[at - 1] ?? 0);
  const ordered = new Array<number>(slots.length);
  for (const slot of slots) {
    const at = Math.floor(deadlineMs[slot] ?? 0) - first;
    const place = starts[at] ?? 0;
    ordered[place] = slot;
    starts[at] = place + 1;
  }
  return ordered;
}
