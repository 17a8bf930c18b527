// The cluster's network: one bridge, one namespace and one link a node.
import { writeFileSync } from "node:fs";
import { run, tryRun } from "./command.ts";
import {
  BRIDGE,
  HOST_ADDRESS,
  NODE_NETWORK_BITS,
  SLOTS,
  linkOf,
  networkNamespaceOf,
  nodeAddressOf,
  podNetworkOf,
  type Slot,
} from "./layout.ts";

/** Runs many commands of `ip` in one process, inside a namespace if one is named. */
async function ipBatch(lines: readonly string[], namespace?: string): Promise<void> {
  const where = namespace === undefined ? [] : ["-n", namespace];
  await run("ip", [...where, "-batch", "-"], { input: `${lines.join("\n")}\n` });
}

const bits = String(NODE_NETWORK_BITS);

/** Commands, in the host's namespace, that make the bridge and the links. */
export function hostCommands(slots: readonly Slot[]): readonly string[] {
  return [
    `link add ${BRIDGE} type bridge`,
    `address add ${HOST_ADDRESS}/${bits} dev ${BRIDGE}`,
    `link set ${BRIDGE} up`,
    ...slots.flatMap((slot) => [
      `netns add ${networkNamespaceOf(slot)}`,
      `link add ${linkOf(slot)} type veth peer name eth0 netns ${networkNamespaceOf(slot)}`,
      `link set ${linkOf(slot)} master ${BRIDGE} up`,
      `route add ${podNetworkOf(slot)} via ${nodeAddressOf(slot)}`,
    ]),
  ];
}

/** Commands inside a node's namespace: its address, and a route to every other node's pods. */
export function nodeCommands(slot: Slot, slots: readonly Slot[]): readonly string[] {
  return [
    "link set lo up",
    `address add ${nodeAddressOf(slot)}/${bits} dev eth0`,
    "link set eth0 up",
    `route add default via ${HOST_ADDRESS}`,
    ...slots
      .filter((other) => other !== slot)
      .map((other) => `route add ${podNetworkOf(other)} via ${nodeAddressOf(other)}`),
  ];
}

export async function createNetwork(): Promise<void> {
  await ipBatch(hostCommands(SLOTS));
  writeFileSync("/proc/sys/net/ipv4/ip_forward", "1");
  await Promise.all(
    SLOTS.map(async (slot) => {
      const namespace = networkNamespaceOf(slot);
      await ipBatch(nodeCommands(slot, SLOTS), namespace);
      await run("nsenter", [
        `--net=/run/netns/${namespace}`,
        "sh",
        "-c",
        "echo 1 >/proc/sys/net/ipv4/ip_forward",
      ]);
    }),
  );
}

/** Takes a node's only link down or up. Its pods go on seeing each other and nobody else. */
export async function setLink(slot: Slot, state: "up" | "down"): Promise<void> {
  await run("ip", ["link", "set", linkOf(slot), state]);
}

/** Removes what `createNetwork` made; the links and routes go with the bridge and the namespaces. */
export async function removeNetwork(): Promise<void> {
  await Promise.all(SLOTS.map((slot) => tryRun("ip", ["netns", "delete", networkNamespaceOf(slot)])));
  await Promise.all(SLOTS.map((slot) => tryRun("ip", ["link", "delete", linkOf(slot)])));
  await tryRun("ip", ["link", "delete", BRIDGE]);
}
