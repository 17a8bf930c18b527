// What a worker and its keeper say to each other, a line of JSON each.

/** Ways of owning something. */
export const KINDS = ["lock", "pair", "fair lock", "reader", "writer", "permit", "leader"] as const;
export type Kind = (typeof KINDS)[number];

/** All keys that recipes and workers make: each begins with a slash. */
export const EVERYTHING = { from: "/", to: "0" } as const;

/** Each session keeps a key here, followed by its lease: its deletion tells when the cell ended the lease. */
export const SESSIONS = "/zoo/sessions/";

/** So many permits are there. */
export const PERMITS = 2;

/** What an owner writes to, and in which mode its token counts there. */
export interface Domain {
  readonly resource: string;
  readonly mode: "exclusive" | "shared";
}

/** Times are those of {@link trueNowMs}. */
export type Report =
  | { readonly what: "session"; readonly leaseId: string }
  | { readonly what: "waiting"; readonly kind: Kind; readonly atMs: number }
  /** Read after the answer: it was the owner at this time at the latest. */
  | {
      readonly what: "acquired";
      readonly kind: Kind;
      readonly token: number;
      readonly leaseId: string;
      readonly domains: readonly Domain[];
      readonly atMs: number;
    }
  /** It looked, and was sure: at `atMs`, read before it looked, for `leftMs` more. */
  | { readonly what: "sure"; readonly token: number; readonly atMs: number; readonly leftMs: number }
  /** It looked, and stopped. */
  | { readonly what: "stopped"; readonly token: number }
  | { readonly what: "wrote" | "unknown" | "refused"; readonly token: number }
  /** Read before it begins to let go: it did not believe any more after this. */
  | { readonly what: "releasing"; readonly token: number; readonly atMs: number }
  /** An acquisition that failed, with the error's code. */
  | { readonly what: "gave up"; readonly kind: Kind; readonly code: string }
  /** No session could be had, with the error's code. */
  | { readonly what: "no session"; readonly code: string }
  | { readonly what: "spun"; readonly ms: number }
  /** What no client may do. */
  | { readonly what: "broken"; readonly error: string };

export type Order =
  | { readonly what: "spin"; readonly ms: number }
  /** The next thing that it becomes the owner of is of this kind. */
  | { readonly what: "want"; readonly kind: Kind }
  /** While nothing is wrong, owners do not cling to what they own: others shall get their turn in time. */
  | { readonly what: "calm"; readonly calm: boolean }
  /** Ends what is under way, and the process. */
  | { readonly what: "finish" };

export interface WorkerOptions {
  readonly name: string;
  readonly seed: string;
  readonly endpoints: readonly string[];
  readonly ttlMs: number;
  /** For `pg`: the folder of its socket, and the user. */
  readonly postgres: { readonly host: string; readonly user: string; readonly database: string };
  /** False: effects go to the database as they are. */
  readonly guarded: boolean;
  /** False: it does not look whether it is still the owner. */
  readonly careful: boolean;
}
