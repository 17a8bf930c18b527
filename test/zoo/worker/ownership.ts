import type { Claim, Client, LockOptions } from "@lockstep/client";
import { PERMITS } from "./report.ts";
import type { Domain, Kind } from "./report.ts";

/** Who else there is takes part in the same: names are one for all workers. */
const NAME = "zoo";

export interface Owned {
  readonly claim: Claim;
  readonly domains: readonly Domain[];
}

/** Becomes the owner of something of this kind; throws what the recipe throws. */
export async function acquire(client: Client, kind: Kind, options: LockOptions): Promise<Owned> {
  switch (kind) {
    case "lock":
      return { claim: await client.lock("a", options), domains: [exclusive("a")] };
    case "pair":
      return {
        claim: await client.multiLock(["a", "b"]).acquire(options),
        domains: [exclusive("a"), exclusive("b")],
      };
    case "fair lock":
      return { claim: await client.fairLock(NAME).acquire(options), domains: [exclusive("fair")] };
    case "reader":
      return {
        claim: await client.readWriteLock(NAME).read(options),
        domains: [{ resource: "document", mode: "shared" }],
      };
    case "writer":
      return { claim: await client.readWriteLock(NAME).write(options), domains: [exclusive("document")] };
    case "permit": {
      const permit = await client.semaphore(NAME, { permits: PERMITS }).acquire(options);
      return { claim: permit, domains: [exclusive(`permit ${String(permit.slot)}`)] };
    }
    case "leader": {
      const leadership = await client.election(NAME).campaign({ ...options, value: options.session.owner });
      return { claim: leadership, domains: [exclusive("led")] };
    }
  }
}

function exclusive(resource: string): Domain {
  return { resource, mode: "exclusive" };
}
