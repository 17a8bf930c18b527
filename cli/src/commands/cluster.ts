import { createWriteStream } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { Transform } from "node:stream";
import { admin } from "@lockstep/proto";
import { adminError, type PerMember } from "../admin-client.ts";
import type { Context } from "../context.ts";
import { CliError, EXIT } from "../exit-codes.ts";
import { bytesText, formatTable, print } from "../output.ts";
import { findMember } from "./membership-plan.ts";

const PROGRESS_MS = 500;

export function roleText(role: admin.Role): string {
  switch (role) {
    case admin.Role.FOLLOWER:
      return "follower";
    case admin.Role.PRE_CANDIDATE:
      return "pre-candidate";
    case admin.Role.CANDIDATE:
      return "candidate";
    case admin.Role.LEADER:
      return "leader";
    case admin.Role.UNSPECIFIED:
      return "unknown";
  }
}

export function kindText(kind: admin.MemberKind): string {
  switch (kind) {
    case admin.MemberKind.VOTER:
      return "voter";
    case admin.MemberKind.LEARNER:
      return "learner";
    case admin.MemberKind.LEAVING:
      return "leaving";
    case admin.MemberKind.UNSPECIFIED:
      return "unknown";
  }
}

/** Every member's own view: the endpoints given, and those that the cell lists. */
export async function status(context: Context): Promise<number> {
  const { terminal, options } = context;
  const answers = await context.withAdmin(async (client) => {
    const addresses = new Set(options.adminEndpoints);
    try {
      for (const member of (await client.listMembers()).members) {
        if (member.addresses !== undefined) addresses.add(member.addresses.admin);
      }
    } catch {
      // Without a leader there is no list; each endpoint's own status is the more wanted then.
    }
    return Promise.all([...addresses].map((address) => client.statusOrError(address)));
  });
  // An endpoint may be the same member under another name.
  const seen = new Set<number>();
  const members = answers.filter((answer) => {
    if ("error" in answer) return true;
    if (seen.has(answer.status.memberId)) return false;
    seen.add(answer.status.memberId);
    return true;
  });
  print(terminal, options.output, {
    json: {
      members: members.map((answer) =>
        "error" in answer ? { admin: answer.address, error: answer.error } : statusJson(answer),
      ),
    },
    text: () => formatTable(STATUS_HEAD, members.map(statusRow)),
  });
  if (options.output === "table") {
    for (const answer of members) {
      if ("error" in answer) terminal.err(`${answer.address} does not answer: ${answer.error}\n`);
      else if (answer.status.alarms.length > 0) {
        terminal.err(`${answer.status.name} raises: ${answer.status.alarms.join(", ")}\n`);
      }
    }
  }
  if (members.every((answer) => "error" in answer)) return EXIT.unavailable;
  return members.every((answer) => !("error" in answer) && answer.status.ready) ? EXIT.ok : EXIT.failed;
}

const STATUS_HEAD = [
  "ID",
  "NAME",
  "ROLE",
  "READY",
  "TERM",
  "APPLIED",
  "COMMITTED",
  "REVISION",
  "KEYS",
  "LEASES",
  "WATCHES",
  "DATA",
  "LOG",
  "ADMIN",
];

function statusRow(answer: PerMember): string[] {
  if ("error" in answer)
    return ["-", "-", "unreachable", "no", ...Array<string>(9).fill("-"), answer.address];
  const { status: s } = answer;
  return [
    String(s.memberId),
    s.name,
    roleText(s.role),
    s.ready ? "yes" : "no",
    String(s.term),
    String(s.appliedIndex),
    String(s.commitIndex),
    String(s.revision),
    String(s.keys),
    String(s.leases),
    String(s.watches),
    bytesText(s.databaseBytes),
    bytesText(s.logBytes),
    answer.address,
  ];
}

function statusJson({ address, status: s }: { address: string; status: admin.StatusResponse }): unknown {
  return {
    ...s,
    role: roleText(s.role),
    admin: address,
  };
}

export async function transferLeader(context: Context, target: string | undefined): Promise<number> {
  const { terminal, options } = context;
  const result = await context.withAdmin(async (client) => {
    const listed = await client.listMembers();
    const member = target === undefined ? undefined : findMember(listed, target);
    if (member !== undefined && member.kind !== admin.MemberKind.VOTER) {
      throw new CliError(EXIT.usage, `${member.name} is a ${kindText(member.kind)}: only a voter can lead`);
    }
    const { leaderId } = await client.transferLeadership(member?.id ?? 0);
    return listed.members.find(({ id }) => id === leaderId) ?? { id: leaderId, name: String(leaderId) };
  });
  print(terminal, options.output, {
    json: { leaderId: result.id, name: result.name },
    text: () => `${result.name} (${String(result.id)}) leads now\n`,
  });
  return EXIT.ok;
}

/** Writes a snapshot beside FILE and renames it when it is whole. */
export async function snapshot(context: Context, file: string): Promise<number> {
  const { terminal, options } = context;
  const partial = `${file}.partial`;
  let bytes = 0;
  let reportedAt = terminal.now();
  const progress = new Transform({
    writableObjectMode: true,
    transform(chunk: admin.SnapshotChunk, _encoding, done) {
      bytes += chunk.data.length;
      if (terminal.now() - reportedAt >= PROGRESS_MS) {
        reportedAt = terminal.now();
        terminal.err(`${bytesText(bytes)} received\n`);
      }
      done(null, chunk.data);
    },
  });
  await context.withAdmin(async (client) => {
    const stream = await client.snapshot();
    try {
      await pipeline(stream, progress, createWriteStream(partial, { flush: true }));
      await rename(partial, file);
    } catch (error) {
      // Destroying a gRPC stream, as the pipeline does, does not end its call: the member would go on sending.
      stream.cancel();
      await rm(partial, { force: true });
      throw isFileError(error)
        ? new CliError(EXIT.failed, `cannot write ${file}: ${error.message}`)
        : adminError(error, options.adminEndpoints);
    }
  });
  print(terminal, options.output, {
    json: { file, bytes },
    text: () => `${file}: ${bytesText(bytes)}\n`,
  });
  return EXIT.ok;
}

function isFileError(error: unknown): error is Error {
  return error instanceof Error && "syscall" in error;
}
