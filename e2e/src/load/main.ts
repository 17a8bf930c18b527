// The load client: writes, locks and watches a cell all the time, checks what it is told, and reports over HTTP.
//
//   node main.ts --endpoints HOST:PORT,... [--tls FOLDER] [--listen HOST:PORT] [--writes PER_SECOND] ...
import { connect, tlsFromFiles, type Client } from "@lockstep/client";
import { randomBytes } from "node:crypto";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { ClientStore } from "./client-store.ts";
import { fill } from "./fill.ts";
import { Load } from "./load.ts";
import { parseProgramOptions, type ProgramOptions } from "./options.ts";
import type { Timing } from "./pace.ts";
import { createLoadServer } from "./server.ts";

const RETRY_MS = 500;
const CONNECT_MS = 5_000;
const FILL_DEADLINE_MS = 30_000;
/** A line in the log: what is left when nobody could ask any more. */
const TELL_MS = 10_000;

const timing: Timing = {
  now: () => performance.now(),
  wallNow: () => Date.now(),
  delay: async (ms) => {
    await delay(ms);
  },
  random: () => Math.random(),
};

/** The cell may not be there yet, nor its certificates be what they will be. */
async function connectAtLast(options: ProgramOptions): Promise<Client> {
  const { endpoints, namespace, tlsFolder, deadlineMs } = options;
  for (;;) {
    try {
      return await connect({
        endpoints,
        namespace,
        deadlineMs,
        connectTimeoutMs: CONNECT_MS,
        ...(tlsFolder === undefined ? {} : { tls: tlsFromFiles(filesIn(tlsFolder)) }),
      });
    } catch (error) {
      console.error(`not connected: ${(error as Error).message}`);
      await delay(RETRY_MS);
    }
  }
}

function filesIn(folder: string): { readonly ca: string; readonly cert: string; readonly key: string } {
  return { ca: join(folder, "ca.crt"), cert: join(folder, "tls.crt"), key: join(folder, "tls.key") };
}

async function startLoad(options: ProgramOptions, clients: Client[]): Promise<Load> {
  const open = async (): Promise<ClientStore> => {
    const client = await connectAtLast(options);
    clients.push(client);
    return new ClientStore(client, options);
  };
  if (options.fill > 0) {
    const client = await connectAtLast(options);
    await fill(client, options.fill, FILL_DEADLINE_MS);
    client.close();
    console.log(`${String(options.fill)} keys are written`);
  }
  const stores = { writes: await open(), locks: await open(), watch: await open() };
  const instance = randomBytes(6).toString("hex");
  const load = new Load(stores, { instance, ...options.load }, timing, (violation) =>
    console.error(`VIOLATION ${JSON.stringify(violation)}`),
  );
  await load.start();
  setInterval(() => tell(load), TELL_MS);
  return load;
}

function tell(load: Load): void {
  const { current, locks, watch, lastError, violations } = load.report();
  const counts = { locks: locks.acquired, events: watch.events, awaited: watch.awaited };
  console.log(JSON.stringify({ ...current, ...counts, lastError, violations: violations.count }));
}

async function main(): Promise<void> {
  const options = parseProgramOptions(process.argv.slice(2));
  const clients: Client[] = [];
  const running: { load?: Load } = {};
  const server = createLoadServer(() => running.load);
  await new Promise<void>((resolve) => server.listen(options.listenPort, options.listenHost, resolve));
  console.log(`listening on port ${String((server.address() as AddressInfo).port)}`);
  const end = async (): Promise<never> => {
    await Promise.race([running.load?.stop(), delay(options.deadlineMs)]);
    for (const client of clients) client.close();
    process.exit(0);
  };
  process.once("SIGTERM", () => void end());
  process.once("SIGINT", () => void end());
  running.load = await startLoad(options, clients);
  console.log("the load runs");
}

try {
  await main();
} catch (error) {
  console.error(error);
  process.exitCode = 1;
}
