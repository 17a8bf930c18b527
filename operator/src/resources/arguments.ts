import { durationMs } from "../api/duration.ts";
import type { CellIdentity } from "../api/labels.ts";
import { memberHost, PORTS } from "../api/names.ts";
import { quantityValue } from "../api/quantity.ts";
import type { CellSettings } from "../api/types.ts";
import type { PodMode } from "../plan/types.ts";

/** Where the volume is mounted. */
export const VOLUME_PATH = "/var/lib/lockstep";
/** The member's folder: not the volume's root, where some file systems keep things of their own. */
export const DATA_PATH = "/var/lib/lockstep/member";
/** Where the member's certificate Secret is mounted. */
export const TLS_PATH = "/etc/lockstep/tls";

export interface ArgumentsInput {
  readonly cell: CellIdentity;
  readonly member: string;
  readonly settings: CellSettings | undefined;
  readonly mode: PodMode;
}

/** What the cell's program is started with as a member. It listens on every address and tells its host name. */
export function memberArguments({ cell, member, settings, mode }: ArgumentsInput): readonly string[] {
  return [
    "member",
    `--data=${DATA_PATH}`,
    `--name=${member}`,
    ...Object.entries(PORTS).map(([name, port]) => `--${name}=0.0.0.0:${String(port)}`),
    ...advertiseArguments(cell, member),
    `--tls-cert=${TLS_PATH}/tls.crt`,
    `--tls-key=${TLS_PATH}/tls.key`,
    `--tls-ca=${TLS_PATH}/ca.crt`,
    `--tls-cell-uid=${cell.uid}`,
    ...settingsArguments(settings ?? {}),
    ...originArguments(mode, cell),
  ];
}

function settingsArguments({ quota, retention, logLevel }: CellSettings): readonly string[] {
  return [
    ...(quota === undefined ? [] : [`--quota-bytes=${String(quantityValue(quota))}`]),
    ...(retention === undefined ? [] : [`--retention-age-ms=${String(durationMs(retention))}`]),
    ...(logLevel === undefined ? [] : [`--log-level=${logLevel}`]),
  ];
}

function originArguments(mode: PodMode, cell: CellIdentity): readonly string[] {
  switch (mode.kind) {
    case "bootstrap":
      return ["--bootstrap"];
    case "join":
      return [
        `--join=${mode.targets.map((target) => `${memberHost(target, cell.name, cell.namespace)}:${String(PORTS.admin)}`).join(",")}`,
      ];
    case "existing":
    case "recover":
      return [];
  }
}

/**
 * What the cell's program is started with before a recovered member, in an init container: it makes a new cell of one
 * voter from the volume if that belongs to `cellId`. Run again after it has, it changes nothing; on the volume of any
 * other cell it refuses, and the Pod does not start.
 */
export function recoverArguments(
  mode: Extract<PodMode, { readonly kind: "recover" }>,
  { cell, member }: Pick<ArgumentsInput, "cell" | "member">,
): readonly string[] {
  return [
    "recover",
    DATA_PATH,
    `--name=${mode.newName}`,
    `--expect-cell-id=${mode.cellId}`,
    ...advertiseArguments(cell, member),
  ];
}

function advertiseArguments(cell: CellIdentity, member: string): readonly string[] {
  const host = memberHost(member, cell.name, cell.namespace);
  return Object.entries(PORTS).map(([name, port]) => `--advertise-${name}=${host}:${String(port)}`);
}
