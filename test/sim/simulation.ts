/** One history, from the first member to the last check. */
import type { Coverage } from "./coverage.ts";
import { Nemesis } from "./nemesis.ts";
import { Operators } from "./operators.ts";
import { drawPlan } from "./plan.ts";
import type { Plan } from "./plan.ts";
import { Violation, World } from "./world.ts";

const SECOND_US = 1_000_000;
/** A cell is founded within this, in a calm world. */
const FOUNDING_SECONDS_MAX = 60;
/** Clients go on for so long after the last fault. */
const RECOVERY_SECONDS = 5;
/** I13: some time after the last fault everything is at rest. */
const REST_SECONDS_MAX = 240;
/** A lease that nobody renews has ended so long after its TTL, in a healthy cell. */
const EXPIRY_BOUND_MS = 10_000;

export interface Outcome {
  readonly seed: number;
  readonly plan: Plan;
  readonly violation: Violation | undefined;
  readonly coverage: Coverage;
  readonly simulatedSeconds: number;
  readonly steps: number;
  /** Hash of everything that happened: two runs of a seed agree in it. */
  readonly fingerprint: string;
}

export interface RunOptions {
  readonly seed: number;
  /** Default: drawn from the seed. */
  readonly plan?: Plan;
  readonly onTrace?: (line: string) => void;
  /** For whoever wants to look inside, at any time while it runs and after. */
  readonly onWorld?: (world: World) => void;
}

export async function runSeed(options: RunOptions): Promise<Outcome> {
  const plan = options.plan ?? drawPlan(options.seed);
  const world = new World({ plan, ...(options.onTrace === undefined ? {} : { onTrace: options.onTrace }) });
  options.onWorld?.(world);
  const stopListening = listen(world);
  try {
    await live(world);
  } catch (error) {
    if (!(error instanceof Violation)) {
      const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
      world.violation ??= new Violation("exception", text);
    }
  } finally {
    stopListening();
  }
  world.coverage.steps = world.loop.steps;
  return {
    ...{ seed: options.seed, plan, violation: world.violation, coverage: world.coverage },
    simulatedSeconds: world.loop.nowUs / SECOND_US,
    steps: world.loop.steps,
    fingerprint: world.fingerprint(),
  };
}

async function live(world: World): Promise<void> {
  const operators = new Operators(world);
  const nemesis = new Nemesis(world, operators);
  await founded(world, operators);
  watchBounds(world);
  for (const actor of world.workload.actors()) world.startActor(actor.name, (context) => actor.run(context));
  if (world.plan.wildness > 0) nemesis.start();
  await until(world, world.plan.workSeconds);

  nemesis.end();
  world.workload.healed();
  const healedAtUs = world.loop.nowUs;
  const repaired = operatorsDone(world, operators);
  await until(world, RECOVERY_SECONDS);
  world.stopping = true;
  await until(world, REST_SECONDS_MAX, () => world.actorsLeft === 0);
  if (world.actorsLeft > 0) world.violate("actors", `did not come to an end: ${world.actorsDoing()}`);
  await atRest(world, repaired);
  const { tickMs, electionTimeoutTicks } = world.plan.member;
  const boundMs = EXPIRY_BOUND_MS + 10 * tickMs * electionTimeoutTicks;
  await until(world, (boundMs + world.plan.workload.ttlMsMax) / 1_000 + 1);
  world.workload.expectNoOrphanLeases(healedAtUs, boundMs);
  world.workload.finish();
}

/** Memory: once a simulated second. */
function watchBounds(world: World): void {
  for (const { member } of world.running()) if (member !== undefined) world.god.checkBounds(member);
  world.loop.in(SECOND_US, () => watchBounds(world));
}

async function founded(world: World, operators: Operators): Promise<void> {
  let done = false as boolean;
  operators.found(world.plan.voters).then(
    () => (done = true),
    (error: unknown) => {
      world.violation ??= new Violation("founding", String(error));
    },
  );
  await until(world, FOUNDING_SECONDS_MAX, () => done);
  if (!done) world.violate("founding", "the cell was not founded in time");
}

/**
 * From the last fault on the operators look again and again: that a disk is damaged may come out only later.
 * @returns whether all that is lost is out of the configuration
 */
function operatorsDone(world: World, operators: Operators): () => boolean {
  let done = false;
  const again = (): void => void world.loop.in(SECOND_US, look);
  const look = (): void => {
    done = !operators.busy && operators.lostAreGone();
    if (operators.busy || done) return again();
    operators.repair().then(again, (error: unknown) => {
      world.violation ??= new Violation("operators", String(error));
    });
  };
  look();
  return () => done;
}

async function atRest(world: World, repaired: () => boolean): Promise<void> {
  let unrest: string | undefined = "nobody has looked";
  for (let seconds = 0; unrest !== undefined && seconds < REST_SECONDS_MAX; seconds += 1) {
    await until(world, 1);
    unrest = repaired() ? world.unrest() : "the operators are not done";
  }
  if (unrest !== undefined)
    world.violate("I13", `${String(REST_SECONDS_MAX)} s after the last fault: ${unrest}`);
}

/** Lets time pass, at most until `over`. Ends at once, and throws, when a law is broken. */
async function until(world: World, seconds: number, over: () => boolean = () => false): Promise<void> {
  const { loop } = world;
  const endUs = loop.nowUs + seconds * SECOND_US;
  let reached = false;
  loop.in(seconds * SECOND_US, () => (reached = true));
  await loop.run(() => world.violation !== undefined || reached || over());
  if (world.violation !== undefined) throw world.violation;
  if (!over() && loop.nowUs < endUs) world.violate("kernel", "nothing is left to happen");
}

/** What nobody caught is a bug of somebody: production must not throw into the void. */
function listen(world: World): () => void {
  const onError = (error: unknown): void => {
    if (error instanceof Violation) return;
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    world.violation ??= new Violation("exception", text);
  };
  process.on("uncaughtException", onError);
  process.on("unhandledRejection", onError);
  return () => {
    process.off("uncaughtException", onError);
    process.off("unhandledRejection", onError);
  };
}
