// A watch of one collection that is opened again where it ended, and what it has seen.
import type { ApiClient, WatchEvent } from "./api.ts";

interface Seen {
  readonly type: WatchEvent["type"];
  readonly revision: number;
}

/** What each object went through, in the order of the watch. */
export class Follower {
  readonly #path: string;
  readonly #client: () => ApiClient;
  readonly #objects = new Map<string, Seen[]>();
  readonly #revisions = new Set<number>();
  readonly #faults: string[] = [];
  #reached: number;
  #opened = 0;
  #stopped = false;
  #stop: () => void = () => undefined;
  #done: Promise<void> = Promise.resolve();

  /** @param from the resourceVersion of the list that it starts behind */
  constructor(client: () => ApiClient, path: string, from: string) {
    this.#client = client;
    this.#path = path;
    this.#reached = Number(from);
  }

  start(): void {
    this.#done = this.#run();
  }

  async #run(): Promise<void> {
    const stopped = (): boolean => this.#stopped;
    while (!stopped()) {
      const client = this.#client();
      const query = `watch=1&allowWatchBookmarks=true&resourceVersion=${String(this.#reached)}`;
      const watch = client.watch(`${this.#path}?${query}&timeoutSeconds=3600`, (event) => this.#take(event));
      this.#opened += 1;
      this.#stop = () => watch.stop();
      await watch.ended;
      client.close();
      // The apiserver may be down: not again at once.
      if (!stopped()) await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  #take(event: WatchEvent): void {
    if (event.type === "ERROR") {
      this.#faults.push(`an error event: ${JSON.stringify(event.object)}`);
      return;
    }
    const revision = Number(event.object.metadata.resourceVersion);
    if (event.type === "BOOKMARK") {
      if (revision < this.#reached) this.#faults.push(`a bookmark goes back to ${String(revision)}`);
      this.#reached = revision;
      return;
    }
    const { name } = event.object.metadata;
    if (revision <= this.#reached)
      this.#faults.push(`${event.type} ${name} at ${String(revision)}, behind ${String(this.#reached)}`);
    this.#reached = Math.max(this.#reached, revision);
    const seen = this.#objects.get(name) ?? [];
    const there = seen.length > 0 && seen.at(-1)?.type !== "DELETED";
    if (there !== (event.type !== "ADDED"))
      this.#faults.push(`${event.type} ${name} while it was ${there ? "there" : "absent"}`);
    seen.push({ type: event.type, revision });
    this.#objects.set(name, seen);
    this.#revisions.add(revision);
  }

  /** Whatever was out of order. */
  get faults(): readonly string[] {
    return this.#faults;
  }

  /** How often it was opened. */
  get opened(): number {
    return this.#opened;
  }

  get reached(): number {
    return this.#reached;
  }

  saw(revision: number): boolean {
    return this.#revisions.has(revision);
  }

  /** Names and resourceVersions of what is there, as far as it has seen. */
  present(): ReadonlyMap<string, number> {
    const list = new Map<string, number>();
    for (const [name, seen] of this.#objects) {
      const last = seen.at(-1);
      if (last !== undefined && last.type !== "DELETED") list.set(name, last.revision);
    }
    return list;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#stop();
    await this.#done;
  }
}
