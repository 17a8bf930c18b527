// What a scenario is, and what it is given.
import type { Cluster, ClientOptions } from "./cluster.ts";
import type { Archive, ImageBuilder, ProjectImages } from "./images.ts";
import type { Say } from "./progress.ts";
import type { UntilOptions } from "./waiting.ts";

/** One story on the cluster. It throws when the story does not go as told. */
export interface Scenario {
  /** Lower case, digits and dashes: it names its Kubernetes namespace too (`e2e-NAME`). */
  readonly name: string;
  /** One line for `--list`. */
  readonly about: string;
  /** Is it part of `--ci`? All of those together may take 20 minutes. */
  readonly ci: boolean;
  /** After this long it has failed. Building and importing images does not count. */
  readonly minutes: number;
  /** `none`: it needs no image of this repository, so none is built for it. Default: all. */
  readonly images?: "none";
  run(context: ScenarioContext): Promise<void>;
}

/** What a scenario works with. */
export interface ScenarioContext {
  readonly cluster: Cluster;
  /** A Kubernetes namespace of its own, there before and gone after. */
  readonly namespace: string;
  /** Fires when its time is over or the run is interrupted; `kubectl` and `until` obey it by themselves. */
  readonly signal: AbortSignal;
  /** Prints a line of progress. */
  readonly say: Say;
  readonly images: ImageBuilder;
  /** A folder for what should be read after the run, e.g. a history. Printed when the scenario fails. */
  readonly artifacts: string;
  /** kubectl in the scenario's namespace; see `Cluster.kubectl`. */
  kubectl(args: readonly string[], options?: ClientOptions): Promise<string>;
  kubectlJson<T>(args: readonly string[], options?: ClientOptions): Promise<T>;
  /** Applies objects, in the scenario's namespace when they name none. */
  apply(...objects: readonly object[]): Promise<void>;
  /** Asks again and again; see `until` of `waiting.ts`. */
  until<T>(
    what: string,
    attempt: () => Promise<T | undefined | false> | T | undefined | false,
    options?: UntilOptions,
  ): Promise<T>;
  /** Registers what is to be undone at the end, whether the scenario passes or not; last registered, first done. */
  finally(undo: () => Promise<void> | void): void;
  /** The base image with Node, imported into every node: for pods that are not Lockstep's. Built and imported once a run. */
  runBase(): Promise<Archive>;
  /** The images of this repository, imported into every node. Built and imported once a run. */
  projectImages(): Promise<ProjectImages>;
}
