import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { LockstepError } from "@lockstep/client";
import { parseAddresses, parseDuration, parseLeaseId } from "./arguments.ts";
import { describe, EXIT } from "./exit-codes.ts";
import { cellText, formatTable } from "./output.ts";
import { commandWords, completionScript } from "./completion.ts";
import { buildProgram } from "./program.ts";
import { record } from "./testing/recorder.ts";
import { processTerminal } from "./terminal.ts";

function words(): ReturnType<typeof commandWords> {
  return commandWords(buildProgram(processTerminal(), () => undefined));
}

test("durations have units, a bare number is seconds", () => {
  assert.equal(parseDuration("500ms"), 500);
  assert.equal(parseDuration("15s"), 15_000);
  assert.equal(parseDuration("1.5m"), 90_000);
  assert.equal(parseDuration("2h"), 7_200_000);
  assert.equal(parseDuration("15"), 15_000);
  for (const wrong of ["", "s", "-1s", "1 s", "1d"]) assert.throws(() => parseDuration(wrong));
});

test("addresses are host:port, and errors name the wrong one", () => {
  assert.deepEqual(parseAddresses("a:1, [::1]:2 ,127.0.0.1:65535"), ["a:1", "[::1]:2", "127.0.0.1:65535"]);
  for (const wrong of ["", "a", "a:", ":1", "a:65536", "a:b"]) assert.throws(() => parseAddresses(wrong));
  assert.throws(() => parseAddresses("a:1,oops"), /"oops" is not host:port/);
});

test("lease ids are positive int63, with or without their prefix", () => {
  assert.equal(parseLeaseId("lease_81"), "81");
  assert.equal(parseLeaseId("9223372036854775807"), "9223372036854775807");
  for (const wrong of ["0", "-1", "01", "9223372036854775808", "x"]) assert.throws(() => parseLeaseId(wrong));
});

test("a table has aligned columns, no lines, and no trailing blanks", () => {
  assert.equal(
    formatTable(
      ["A", "LONG"],
      [
        ["wide cell", "x"],
        ["y", "z"],
      ],
    ),
    "A          LONG\nwide cell  x\ny          z\n",
  );
  assert.equal(cellText(Buffer.from("a\nb")), "a\\nb");
  assert.equal(cellText(Buffer.from("x".repeat(100))).length, 60);
});

test("help ends with exit code 0 and explains the exit codes; mistakes end with 2", async () => {
  const help = await record(["--help"]);
  assert.equal(help.code, EXIT.ok);
  assert.match(help.out, /124 not free within --wait/);
  for (const args of [["bogus"], ["get"], ["put", "a", "b", "--lease", "x"], ["get", "a", "-o", "xml"]]) {
    const result = await record(args);
    assert.equal(result.code, EXIT.usage, args.join(" "));
    assert.notEqual(result.err, "");
  }
});

test("every documented exit code is one of the program's, and the other way round", () => {
  const docs = readFileSync(new URL("../../docs/cli.md", import.meta.url), "utf8");
  const documented = [...docs.matchAll(/^\| (\d+) +\|/gm)].map((match) => Number(match[1]));
  const own = new Set<number>(Object.values(EXIT).filter((code) => code !== EXIT.signalled));
  assert.deepEqual(new Set(documented), own);
});

test("every command is in the documentation", () => {
  const docs = readFileSync(new URL("../../docs/cli.md", import.meta.url), "utf8");
  for (const { path } of words()) assert.ok(docs.includes(`lockstep ${path}`.trim()), path);
});

test("an unknown outcome is told apart from one that was not applied", () => {
  const code = (error: LockstepError): number => describe(error).exitCode;
  assert.equal(code(new LockstepError("deadline-exceeded", "unknown", "")), EXIT.unknown);
  assert.equal(code(new LockstepError("deadline-exceeded", "not-applied", "")), EXIT.unavailable);
  assert.equal(code(new LockstepError("no-leader", "not-applied", "")), EXIT.unavailable);
  assert.equal(code(new LockstepError("quota-exceeded", "not-applied", "")), EXIT.failed);
  assert.equal(code(new LockstepError("invalid-argument", "not-applied", "")), EXIT.usage);
});

test("completion offers commands, subcommands and options, in a script that the shell takes", () => {
  const program = buildProgram(processTerminal(), () => undefined);
  const script = completionScript(program, "bash");
  assert.equal(spawnSync("bash", ["-n"], { input: script }).status, 0);
  const complete = (line: string): string[] => {
    const parts = line.split(" ");
    const probe = `${script}\nCOMP_WORDS=(${parts.map((part) => `"${part}"`).join(" ")})\nCOMP_CWORD=${String(parts.length - 1)}\n_lockstep\nprintf '%s\\n' "\${COMPREPLY[@]}"`;
    return spawnSync("bash", ["-c", probe], { encoding: "utf8" }).stdout.split("\n").filter(Boolean);
  };
  assert.deepEqual(complete("lockstep memb"), ["member"]);
  assert.deepEqual(complete("lockstep member pro"), ["promote"]);
  assert.ok(complete("lockstep member promote --t").includes("--timeout"));
  assert.ok(complete("lockstep -o json get --pre").includes("--prefix"));
  assert.match(completionScript(program, "zsh"), /^#compdef lockstep/);
  assert.match(completionScript(program, "fish"), /-a promote/);
  assert.throws(() => completionScript(program, "tcsh"));
});

test("the launcher starts the program on the Node that runs it", () => {
  const launcher = fileURLToPath(new URL("../bin/lockstep.mjs", import.meta.url));
  const result = spawnSync(process.execPath, [launcher, "get"], { encoding: "utf8" });
  assert.equal(result.status, EXIT.usage);
  assert.match(result.stderr, /missing required argument/);
});

test("certificates are named by options, or else by the environment", () => {
  const env = { LOCKSTEP_CA_CERT: "/tls/ca.crt", LOCKSTEP_CERT: "/tls/tls.crt", LOCKSTEP_KEY: "" };
  const options = (...args: readonly string[]): Readonly<Record<string, unknown>> => {
    const program = buildProgram({ ...processTerminal(), env }, () => undefined);
    program.parseOptions([...args]);
    return program.opts();
  };
  const { caCert, cert, key } = options();
  assert.deepEqual([caCert, cert, key], ["/tls/ca.crt", "/tls/tls.crt", undefined]);
  assert.equal(options("--ca-cert=/mine.crt")["caCert"], "/mine.crt");
});

test("a reader who has enough is no failure", () => {
  const launcher = fileURLToPath(new URL("../bin/lockstep.mjs", import.meta.url));
  const script = `"$0" "$1" --help | true; echo "\${PIPESTATUS[0]}"`;
  const { stdout, stderr } = spawnSync("bash", ["-c", script, process.execPath, launcher], {
    encoding: "utf8",
  });
  assert.deepEqual([stdout, stderr], ["0\n", ""]);
});
