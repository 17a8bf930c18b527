/**
 * Production's peer transport (cell/src/transport) over the simulated network: all that is of the simulator is what its
 * timers run on and what its connections are made of.
 */
import { formatAddress } from "../../../cell/src/transport/address.ts";
import { TransportError } from "../../../cell/src/transport/errors.ts";
import { createTransport } from "../../../cell/src/transport/index.ts";
import type { ListeningTransport, PeerNetwork, TransportOptions } from "../../../cell/src/transport/index.ts";
import type { Arrival, PeerListener } from "../../../cell/src/transport/network.ts";
import type { TransportContext } from "../../../cell/src/transport/options.ts";
import type { SimProcess } from "../contract.ts";
import { timersOf } from "../kernel/process.ts";
import type { SimNetwork } from "./network.ts";
import { PeerSocket } from "./peer-socket.ts";

/** The peer listeners of one world. */
export class SimPeerNet {
  readonly #network: SimNetwork;
  /** By address. A listener whose process died stays known: its host refuses connections. */
  readonly #listeners = new Map<string, SimPeerListener>();

  constructor(network: SimNetwork) {
    this.#network = network;
  }

  /**
   * Production's transport in `process`, with the process's dice, clock and timers where the options name none. What
   * dialling members call the address must be the same text. There is no TLS here, and frames know no `intercept`.
   *
   * @throws TransportError `listen-failed` while a live process has the address
   */
  createTransport(options: TransportOptions, process: SimProcess): Promise<ListeningTransport> {
    return createTransport({
      random: () => process.dice.random(),
      now: () => process.monotonicMs(),
      timers: timersOf(process),
      ...options,
      network: this.#networkOf(process),
    });
  }

  #networkOf(process: SimProcess): PeerNetwork {
    return {
      dial: (address, context, events) => {
        const socket = new PeerSocket(process, true, context);
        socket.hear(events);
        this.#reach(process, address, socket);
        return socket;
      },
      listen: ({ host, port }, context, arrived) => {
        const address = formatAddress(host, port);
        if (this.#listeners.get(address)?.listening === true) {
          return Promise.reject(new TransportError("listen-failed", `${address} is in use`));
        }
        const listener = new SimPeerListener({ process, address, context, arrived });
        this.#listeners.set(address, listener);
        return Promise.resolve(listener);
      },
    };
  }

  #reach(from: SimProcess, address: string, socket: PeerSocket): void {
    const network = this.#network;
    const listener = this.#listeners.get(address);
    const host = listener?.process.host;
    // Neither an answer nor a refusal comes through: the attempt times out.
    if (host !== undefined && (network.blocked(from.host, host) || network.blocked(host, from.host))) return;
    if (listener?.listening !== true) {
      from.deliver(network.delayUs() + network.delayUs(), () => socket.refuse("connection refused"));
      return;
    }
    const guest = listener.accept();
    const { dialled, accepted } = network.connect(
      { process: from, handler: socket },
      { process: listener.process, handler: guest },
    );
    socket.attach(dialled);
    guest.attach(accepted);
  }
}

interface ListenerParts {
  readonly process: SimProcess;
  readonly address: string;
  readonly context: TransportContext;
  readonly arrived: (arrival: Arrival) => void;
}

class SimPeerListener implements PeerListener {
  readonly #parts: ListenerParts;
  #closed = false;

  constructor(parts: ListenerParts) {
    this.#parts = parts;
  }

  get address(): string {
    return this.#parts.address;
  }

  get process(): SimProcess {
    return this.#parts.process;
  }

  get listening(): boolean {
    return this.process.alive && !this.#closed;
  }

  /** The operating system takes the connection on, whatever the process does; the process hears of it when it runs. */
  accept(): PeerSocket {
    const { process, context, arrived } = this.#parts;
    const guest = new PeerSocket(process, false, context);
    process.deliver(0, () => {
      if (this.#closed) {
        guest.cut("nobody listens any more");
        return;
      }
      arrived({
        certificate: undefined,
        open: (events) => {
          guest.hear(events);
          return guest;
        },
        refuse: () => guest.cut("refused"),
      });
    });
    return guest;
  }

  updateTls(): void {
    throw new TypeError("the simulated network has no certificates");
  }

  /** What it accepted ends by itself: the transport closes it. */
  close(): Promise<void> {
    this.#closed = true;
    return Promise.resolve();
  }
}
