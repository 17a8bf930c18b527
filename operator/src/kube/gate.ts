/**
 * Stands before every write of a process that may write only while it holds a lease. A write enters, carries the pass's
 * signal to the end, and leaves.
 */
export interface WriteGate {
  /** @throws KubeError `fenced` when this process may not write now */
  enter(): WritePass;
}

export interface WritePass {
  /** Aborted, with KubeError `fenced`, when the right to write ends under way: the write may or may not have happened. */
  readonly signal: AbortSignal;
  leave(): void;
}
