import type { Session } from "../session.ts";

/**
 * Who is to be told of a session's end. An `AbortSignal` looks through all its listeners whenever one is added or
 * removed, and a session may carry ten thousand claims: so it gets one listener, and they share it.
 */
const listeners = new WeakMap<Session, Set<() => void>>();

/** Calls `listener` when the session is lost, at once if it is already. @returns the function that takes it back. */
export function onSessionLost(session: Session, listener: () => void): () => void {
  if (session.lost.aborted) {
    listener();
    return () => undefined;
  }
  let set = listeners.get(session);
  if (set === undefined) {
    const made = new Set<() => void>();
    set = made;
    listeners.set(session, made);
    session.lost.addEventListener(
      "abort",
      () => {
        for (const tell of made) tell();
        made.clear();
      },
      { once: true },
    );
  }
  const told = set;
  told.add(listener);
  return () => told.delete(listener);
}
