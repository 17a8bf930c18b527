import { Command, Option } from "commander";
import { parseAddresses, parseCount, parseDuration, parseLeaseId } from "./arguments.ts";
import * as cluster from "./commands/cluster.ts";
import { runCellProgram } from "./commands/cell-program.ts";
import * as kv from "./commands/kv.ts";
import * as lease from "./commands/lease.ts";
import { inspect } from "./commands/inspect.ts";
import * as owner from "./commands/lock.ts";
import * as format from "./commands/format.ts";
import * as member from "./commands/member.ts";
import * as namespace from "./commands/namespace.ts";
import { watch, type WatchFlags } from "./commands/watch.ts";
import { completionScript, SHELLS } from "./completion.ts";
import { Context, type Action, type GlobalOptions } from "./context.ts";
import { dev, type DevFlags } from "./dev/dev.ts";
import { EXIT } from "./exit-codes.ts";
import type { Terminal } from "./terminal.ts";

const EXIT_CODES_HELP = `
Exit codes:
  0    done
  1    refused, or any failure without a code of its own
  2    the command line or its input is wrong; nothing was sent
  3    there is no such key, lease or member
  4    no member answered in time; nothing was applied
  5    the answer was lost: the change may or may not have been applied
  6    txn: a compare did not hold, the failure branch ran
  7    the revision asked for was compacted
  lock, semaphore, elect, register: COMMAND's own exit code, or 123 the lock was lost and COMMAND stopped, 124 not free within --wait,
        125 the lock could not be asked for, 126 COMMAND cannot be run, 127 COMMAND not found, 128+N ended by signal N
  serve, verify and dump: those of the member's program (docs/cli.md)

Environment: LOCKSTEP_ENDPOINTS, LOCKSTEP_ADMIN_ENDPOINTS, LOCKSTEP_NAMESPACE, LOCKSTEP_CA_CERT, LOCKSTEP_CERT,
LOCKSTEP_KEY`;

interface Registrar {
  readonly program: Command;
  /** Makes a commander action of a command's body. */
  readonly run: <A extends readonly unknown[]>(action: Action<A>) => (...args: unknown[]) => Promise<void>;
}

/** The whole command line. `onExitCode` is called once a command has run. */
export function buildProgram(terminal: Terminal, onExitCode: (code: number) => void): Command {
  const program = new Command("lockstep")
    .description("Locks, leases, watches and keys of a Lockstep cell, and the cell itself.")
    .showHelpAfterError("(lockstep --help explains)")
    .exitOverride()
    .configureOutput({ writeOut: (text) => terminal.out(text), writeErr: (text) => terminal.err(text) })
    .addHelpText("after", EXIT_CODES_HELP);
  addGlobalOptions(program, terminal);
  const run: Registrar["run"] =
    <A extends readonly unknown[]>(action: Action<A>) =>
    async (...args: unknown[]) => {
      const context = new Context(terminal, program.opts<GlobalOptions>());
      // Commander hands over the arguments, the options, and the command itself.
      onExitCode(await action(context, ...(args.slice(0, -1) as unknown as A)));
    };
  const registrar = { program, run };
  addKeyCommands(registrar);
  addLeaseCommands(registrar);
  addOwnerCommands(registrar);
  addMemberCommands(registrar);
  addNamespaceCommands(registrar);
  addCellCommands(registrar);
  addMemberPrograms(registrar);
  addCompletion(registrar);
  return program;
}

function addGlobalOptions(program: Command, terminal: Terminal): void {
  const { env } = terminal;
  program
    .addOption(
      new Option("--endpoints <host:port,...>", "members' client addresses (LOCKSTEP_ENDPOINTS)")
        .argParser(parseAddresses)
        .default(parseAddresses(env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400"), "127.0.0.1:7400"),
    )
    .addOption(
      new Option("--admin-endpoints <host:port,...>", "members' admin addresses (LOCKSTEP_ADMIN_ENDPOINTS)")
        .argParser(parseAddresses)
        .default(parseAddresses(env["LOCKSTEP_ADMIN_ENDPOINTS"] ?? "127.0.0.1:7403"), "127.0.0.1:7403"),
    )
    .option("--namespace <name>", "key space (LOCKSTEP_NAMESPACE)", env["LOCKSTEP_NAMESPACE"] ?? "default")
    .addOption(
      new Option("-o, --output <format>", "for people or programs")
        .choices(["table", "json"])
        .default("table"),
    )
    .addOption(
      new Option("--call-timeout <duration>", "give up on an answer after this long")
        .argParser(parseDuration)
        .default(10_000, "10s"),
    )
    .addOption(
      fileOption(
        "--ca-cert <file>",
        "trust members whose certificates this CA signed; turns TLS on (LOCKSTEP_CA_CERT)",
        env["LOCKSTEP_CA_CERT"],
      ),
    )
    .addOption(fileOption("--cert <file>", "this client's certificate (LOCKSTEP_CERT)", env["LOCKSTEP_CERT"]))
    .addOption(fileOption("--key <file>", "this client's key (LOCKSTEP_KEY)", env["LOCKSTEP_KEY"]));
}

/** An empty variable is none, as scripts unset theirs. */
function fileOption(flags: string, description: string, fromEnvironment: string | undefined): Option {
  const option = new Option(flags, description);
  return fromEnvironment === undefined || fromEnvironment === "" ? option : option.default(fromEnvironment);
}

function rangeFlags(command: Command): Command {
  return command
    .option("--prefix", "all keys that begin with KEY")
    .option("--from", "KEY and everything after it")
    .option("--range-end <key>", "everything from KEY up to, but not including, this key");
}

function addKeyCommands({ program, run }: Registrar): void {
  rangeFlags(program.command("get").summary("read keys").argument("<key>"))
    .description("Reads a key, or a range of keys. Exit code 3 when the key does not exist.")
    .option("--revision <revision>", "as it was at this revision", parseCount)
    .option("--limit <count>", "at most this many keys", parseCount)
    .option("--keys-only", "leave the values out")
    .option("--count-only", "only count")
    .option("--reverse", "descending order")
    .option("--serializable", "answer from the asked member at once; may be stale")
    .option("--raw", "print only the value's bytes, as they are")
    .action(run<[string, kv.GetFlags]>(kv.get));
  program
    .command("put")
    .summary("write a key")
    .description("Writes a key. Without VALUE the value is read from standard input.")
    .argument("<key>")
    .argument("[value]")
    .option("--lease <id>", "the key vanishes with this lease", parseLeaseId)
    .option("--sequential", "append the 16-digit revision to KEY")
    .option("--previous", "print what was there before")
    .action(run<[string, string | undefined, kv.PutFlags]>(kv.put));
  rangeFlags(program.command("del").summary("delete keys").argument("<key>"))
    .description("Deletes a key, or a range of keys. Exit code 3 when there was nothing to delete.")
    .option("--previous", "print what was there before")
    .action(run<[string, kv.RangeFlags & { previous?: boolean }]>(kv.del));
  program
    .command("txn")
    .summary("run a transaction from standard input")
    .description(
      'Runs a transaction given as JSON on standard input, in the shape of POST /v1/txn:\n{"compares": [{"key", "version" | "createRevision" | "modRevision" | "lease" | "value", "operator"}],\n "success": [{"put": {"key", "value", "lease"?}}, {"delete": {"key"}}, {"get": {"key"}}], "failure": [...]}\nExit code 6 when a compare did not hold.',
    )
    .action(run<[unknown]>((context) => kv.txn(context)));
  rangeFlags(program.command("watch").summary("print changes as they happen").argument("<key>"))
    .description("Prints changes of a key or range, one a line, until it is stopped.")
    .option("--revision <revision>", "from this revision on; default: from now on", parseCount)
    .option("--previous", "with what was there before")
    .option("--no-puts", "leave out puts")
    .option("--no-deletes", "leave out deletions")
    .option("--count <count>", "stop after this many changes", parseCount)
    .action(run<[string, WatchFlags]>(watch));
}

function addLeaseCommands({ program, run }: Registrar): void {
  const group = program
    .command("lease")
    .summary("leases")
    .description("Leases: claims to be alive that keys hang on.");
  group
    .command("grant")
    .summary("grant a lease")
    .description("Grants a lease and prints its id.")
    .argument("<ttl>", "such as 15s; at least 2s", parseDuration)
    .option("--owner <text>", "who it is for; `lease list` shows it")
    .option("--id <id>", "choose the id", parseLeaseId)
    .action(run<[number, { owner?: string; id?: string }]>(lease.grant));
  group
    .command("keepalive")
    .summary("renew a lease until stopped")
    .description("Renews a lease at a third of its time, until it is stopped.")
    .argument("<id>", "", parseLeaseId)
    .option("--once", "renew one time")
    .action(run<[string, { once?: boolean }]>(lease.keepAlive));
  group
    .command("revoke")
    .summary("end a lease")
    .description("Ends a lease; its keys vanish.")
    .argument("<id>", "", parseLeaseId)
    .action(run<[string]>((context, id) => lease.revoke(context, id)));
  group
    .command("show")
    .summary("show a lease")
    .description("Shows what is left of a lease, and its keys.")
    .argument("<id>", "", parseLeaseId)
    .action(run<[string]>((context, id) => lease.show(context, id)));
  group
    .command("list")
    .summary("list the leases")
    .description("Lists all leases of the namespace.")
    .action(run<[unknown]>((context) => lease.list(context)));
}

const COMMAND_FINDS =
  "COMMAND runs without a shell and finds its fencing token in LOCKSTEP_FENCING_TOKEN: it should hand it to whatever it\nchanges. When what it holds is lost or about to be, COMMAND gets TERM, and KILL after --grace.";

function addOwnerCommands({ program, run }: Registrar): void {
  const owning = (name: string, summary: string, description: string): Command =>
    program
      .command(name)
      .summary(summary)
      .description(`${description}\n${COMMAND_FINDS}`)
      .argument("<name>")
      .argument("<command...>", "after --")
      .option("--ttl <duration>", "it is free this long after the last sign of life", parseDuration, 15_000)
      .option("--grace <duration>", "between TERM and KILL", parseDuration, 3_000);
  const waiting = (command: Command): Command =>
    command.option(
      "--wait <duration>",
      "give up when it is not free by then; default: wait for ever",
      parseDuration,
    );
  waiting(owning("lock", "run a command while holding a lock", "Runs COMMAND while holding the lock NAME."))
    .option("--fair", "in the order of asking; a lock of its own beside the one without --fair")
    .action(run<[string, string[], owner.LockFlags]>(owner.lock));
  waiting(
    owning("semaphore", "run a command while few others do", "Runs COMMAND while holding a permit of NAME."),
  )
    .option("--permits <n>", "how many may run at once; all who use NAME must say the same", parseCount)
    .action(run<[string, string[], owner.SemaphoreFlags]>(owner.semaphore));
  waiting(owning("elect", "run a command while leading", "Runs COMMAND while leading the election NAME."))
    .option("--value <text>", "what observers see of the leader, an address say")
    .action(run<[string, string[], owner.ElectFlags]>(owner.elect));
  owning(
    "register",
    "run a command and register it as an endpoint",
    "Runs COMMAND and keeps it registered as an endpoint of the service NAME meanwhile.",
  )
    .requiredOption("--value <value>", "what callers need to know: an address, or JSON")
    .option("--id <id>", "names it among the endpoints; default: a random one")
    .action(run<[string, string[], owner.RegisterFlags]>(owner.register));
  program
    .command("inspect")
    .summary("who holds a lock, and who waits")
    .description(
      "Tells who holds the lock, semaphore or election NAME, its token, since when, and who waits.",
    )
    .argument("<name>")
    .action(run<[string, unknown]>((context, name) => inspect(context, name)));
}

function addMemberCommands({ program, run }: Registrar): void {
  const group = program.command("member").summary("the cell's members").description("The cell's members.");
  const timeout = (command: Command): Command =>
    command.option("--timeout <duration>", "wait this long for members to catch up", parseDuration, 60_000);
  group
    .command("list")
    .summary("list the members")
    .description("Lists the members of the committed configuration.")
    .action(run<[unknown]>((context) => member.list(context)));
  group
    .command("add")
    .summary("announce a learner by hand")
    .description("Announces a member as a learner. `lockstep serve --join` does it by itself.")
    .argument("<name>")
    .requiredOption("--incarnation <uuid>", "the UUID of the member's disk")
    .requiredOption("--client <host:port>", "its client address")
    .requiredOption("--http <host:port>", "its HTTP address")
    .requiredOption("--peer <host:port>", "its peer address")
    .requiredOption("--admin <host:port>", "its admin address")
    .requiredOption("--ops <host:port>", "its ops address")
    .option("--cell-id <id>", "refuse unless it is this cell")
    .action(run<[string, member.AddFlags]>(member.add));
  timeout(group.command("promote").summary("make learners voters"))
    .description("Makes learners voters, several in one change, once they are caught up.")
    .argument("<member...>", "names or ids")
    .option("--force", "without waiting, even if not enough voters would be healthy; for disaster recovery")
    .action(run<[string[], member.PromoteFlags]>(member.promote));
  group
    .command("remove")
    .summary("remove members")
    .description("Removes members from the cell for good: their ids and disks are never used again.")
    .argument("<member...>", "names or ids")
    .option("--force", "even if not enough voters would be healthy; for disaster recovery")
    .action(run<[string[], { force?: boolean }]>(member.remove));
  timeout(group.command("replace").summary("replace a voter by a learner"))
    .description(
      "Replaces a voter by a learner in one joint change; moves leadership away first when OLD leads.",
    )
    .argument("<old>", "name or id of the voter")
    .argument("<new>", "name or id of the learner")
    .action(run<[string, string, member.PromoteFlags]>(member.replace));
}

function addNamespaceCommands({ program, run }: Registrar): void {
  const group = program
    .command("namespace")
    .summary("the cell's namespaces")
    .description("The cell's namespaces: key spaces that know nothing of each other.");
  group
    .command("list")
    .summary("list the namespaces")
    .description("Lists the namespaces with their uids, keys and bytes.")
    .action(run<[unknown]>((context) => namespace.list(context)));
  group
    .command("create")
    .summary("create a namespace")
    .description("Creates a namespace. The same name and uid again does nothing.")
    .argument("<name>", "NAME or NAME.KUBERNETES-NAMESPACE")
    .option("--uid <uid>", "tells it from another of the same name; default: a random one")
    .action(run<[string, namespace.UidFlags]>(namespace.create));
  group
    .command("delete")
    .summary("delete a namespace and all that is in it")
    .description("Deletes a namespace with its keys, its history and its leases. There is no way back.")
    .argument("<name>", "")
    .option("--uid <uid>", "refuse unless it has this uid; default: whichever has the name")
    .action(run<[string, namespace.UidFlags]>(namespace.remove));
}

function addCellCommands({ program, run }: Registrar): void {
  program
    .command("status")
    .summary("how every member is")
    .description("Asks every member for its own view. Exit code 1 when one is not ready or does not answer.")
    .action(run<[unknown]>((context) => cluster.status(context)));
  const leader = program.command("leader").summary("leadership").description("Leadership of the cell.");
  leader
    .command("transfer")
    .summary("move leadership")
    .description("Moves leadership to MEMBER, or to the most caught-up voter.")
    .argument("[member]", "name or id")
    .action(run<[string | undefined]>((context, target) => cluster.transferLeader(context, target)));
  const formats = program.command("format").summary("the format version").description("The format version.");
  formats
    .command("raise")
    .summary("let the cell use a newer format")
    .description(
      "Raises the cell's format version, after all members were upgraded. There is no way back to an older program.",
    )
    .argument("[version]", "default: the newest that all members apply", parseCount)
    .action(run<[number | undefined]>((context, version) => format.raise(context, version)));
  program
    .command("snapshot")
    .summary("save the whole state to a file")
    .description("Saves the state at one applied index to FILE.")
    .argument("<file>")
    .action(run<[string]>((context, file) => cluster.snapshot(context, file)));
  program
    .command("dev")
    .summary("run a whole cell here, for development")
    .description(
      "Runs a cell of real processes on this machine until it is stopped. Prints one line of JSON when it is ready.\nMember i listens from base + 10·i on: +0 client, +1 HTTP, +2 peers, +3 admin, +4 ops.",
    )
    .option("--members <count>", "1, 3 or 5", parseCount, 3)
    .option("--data <dir>", "where the members' folders are", "./data/dev")
    .option("--base-port <port>", "the first port", parseCount, 7400)
    .option("--no-restart", "leave a member that dies alone")
    .action(run<[DevFlags]>(dev));
}

function addMemberPrograms({ program, run }: Registrar): void {
  const offline = (name: string, summary: string, description: string): void => {
    program
      .command(name)
      .summary(summary)
      .description(description)
      .argument("<folder>", "the member's folder; the member must be stopped")
      .action(run<[string]>(({ terminal }, folder) => runCellProgram(terminal, [name, folder])));
  };
  program
    .command("serve")
    .summary("run one member")
    .description(
      "Runs one member in the foreground; all flags are those of the member's program (serve --help).",
    )
    .allowUnknownOption()
    .argument("[flags...]")
    .action(run<[string[]]>(({ terminal }, flags) => runCellProgram(terminal, ["member", ...flags])));
  offline("verify", "check a stopped member's folder", "Checks a stopped member's log and store for damage.");
  program
    .command("recover")
    .summary("make a cell of a stopped member, after its majority is lost")
    .description(
      "Makes a stopped member's folder the only voter of a new cell, when the majority of the old one is lost for good;\nthe flags are those of the member's program. Run again with the same ones, it changes nothing.",
    )
    .allowUnknownOption()
    .argument("<folder>", "the member's folder; the member must be stopped")
    .argument(
      "[flags...]",
      "--name NEW-NAME [--expect-cell-id ID] [--expect-applied-index N] [--advertise-client HOST:PORT ...]",
    )
    .action(
      run<[string, string[]]>(({ terminal, options }, folder, flags) =>
        runCellProgram(terminal, [
          "recover",
          folder,
          ...flags,
          "-o",
          options.output === "json" ? "json" : "text",
        ]),
      ),
    );
  offline("dump", "print a stopped member's folder", "Prints what a stopped member's folder holds.");
}

function addCompletion({ program, run }: Registrar): void {
  program
    .command("completion")
    .summary("print a shell's completion script")
    .description("Prints a completion script, e.g. source <(lockstep completion bash)")
    .argument("<shell>", SHELLS.join(", "))
    .action(
      run<[string]>(({ terminal }, shell) => {
        terminal.out(completionScript(program, shell));
        return Promise.resolve(EXIT.ok);
      }),
    );
}
