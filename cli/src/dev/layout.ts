import { join } from "node:path";
import { usageError } from "../exit-codes.ts";

const HOST = "127.0.0.1";
const PORTS_PER_MEMBER = 10;

export interface DevMember {
  readonly name: string;
  readonly folder: string;
  readonly logFile: string;
  readonly client: string;
  readonly http: string;
  readonly peer: string;
  readonly admin: string;
  readonly ops: string;
}

export interface DevLayout {
  readonly members: readonly DevMember[];
}

/** Names, folders and ports of a development cell: member i takes the ports from base + 10·i on. */
export function layOut(data: string, memberCount: number, basePort: number): DevLayout {
  if (memberCount !== 1 && memberCount !== 3 && memberCount !== 5) {
    throw usageError(
      "--members is 1, 3 or 5: an even number of voters survives no more failures than one less",
    );
  }
  const lastPort = basePort + PORTS_PER_MEMBER * (memberCount - 1) + 4;
  if (basePort < 1 || lastPort > 65_535)
    throw usageError("--base-port leaves no room for all ports below 65536");
  const members = Array.from({ length: memberCount }, (_, index) => {
    const name = `dev-${String(index)}`;
    const folder = join(data, name);
    const address = (offset: number): string =>
      `${HOST}:${String(basePort + PORTS_PER_MEMBER * index + offset)}`;
    return {
      name,
      folder,
      logFile: join(folder, "member.log"),
      client: address(0),
      http: address(1),
      peer: address(2),
      admin: address(3),
      ops: address(4),
    };
  });
  return { members };
}

/** The arguments of the member's program. Member 0 begins the cell, the others join it. */
export function memberArguments(layout: DevLayout, index: number): string[] {
  const member = layout.members[index];
  const first = layout.members[0];
  if (member === undefined || first === undefined)
    throw new RangeError(`there is no member ${String(index)}`);
  return [
    "member",
    "--data",
    member.folder,
    "--name",
    member.name,
    ...(index === 0 ? ["--bootstrap"] : ["--join", first.admin]),
    "--client",
    member.client,
    "--http",
    member.http,
    "--peer",
    member.peer,
    "--admin",
    member.admin,
    "--ops",
    member.ops,
  ];
}

/** How a cell of `voters` grows to `target`: by two at a time, so that it never rests on an even number. */
export function growthSteps(voters: number, target: number): number[] {
  const steps: number[] = [];
  for (let now = voters; now < target;) {
    const step = Math.min(now % 2 === 0 ? 1 : 2, target - now);
    steps.push(step);
    now += step;
  }
  return steps;
}
