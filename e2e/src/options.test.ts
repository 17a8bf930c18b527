import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HELP, parseCommand, selectScenarios } from "./options.ts";

const run = { kind: "run", ci: false, only: undefined, keep: false, reuse: false } as const;

describe("parseCommand", () => {
  it("runs everything when nothing is said", () => {
    assert.deepEqual(parseCommand([]), run);
    assert.deepEqual(parseCommand(["run"]), run);
  });

  it("reads names of --only, separated by commas or given again", () => {
    assert.deepEqual(parseCommand(["--only", "a,b", "--only", "c"]), { ...run, only: ["a", "b", "c"] });
  });

  it("reads the other options of run", () => {
    assert.deepEqual(parseCommand(["--ci", "--keep", "--reuse"]), {
      ...run,
      ci: true,
      keep: true,
      reuse: true,
    });
    assert.deepEqual(parseCommand(["--list", "--ci"]), { kind: "list", ci: true });
  });

  it("reads the other commands", () => {
    assert.deepEqual(parseCommand(["up"]), { kind: "up" });
    assert.deepEqual(parseCommand(["down"]), { kind: "down" });
    assert.deepEqual(parseCommand(["build"]), { kind: "build", images: false });
    assert.deepEqual(parseCommand(["build", "--images"]), { kind: "build", images: true });
  });

  it("helps whatever else is said", () => {
    for (const argv of [["--help"], ["-h"], ["up", "--help"], ["help"]])
      assert.deepEqual(parseCommand(argv), { kind: "help" });
  });

  for (const [argv, message] of [
    [["fly"], /no command "fly"/],
    [["up", "down"], /One command/],
    [["up", "--ci"], /--ci belongs to "run"/],
    [["down", "--only", "a"], /--only belongs to "run"/],
    [["--images"], /--images belongs to "build"/],
    [["--only", "a,,b"], /wants names/],
    [["--olny", "a"], /olny/],
  ] as const)
    it(`refuses: ${argv.join(" ")}`, () => {
      assert.throws(() => parseCommand(argv), { name: "TypeError", message });
    });

  it("explains each command and option in the help", () => {
    for (const word of [
      "run",
      "up",
      "down",
      "build",
      "--only",
      "--ci",
      "--list",
      "--keep",
      "--reuse",
      "--images",
    ])
      assert.ok(HELP.includes(word), word);
  });
});

describe("selectScenarios", () => {
  const scenarios = [
    { name: "a", ci: true },
    { name: "b", ci: false },
    { name: "c", ci: true },
  ];
  const names = (choice: { ci: boolean; only: readonly string[] | undefined }): readonly string[] =>
    selectScenarios(scenarios, choice).map(({ name }) => name);

  it("keeps the declared order whatever order the names have", () => {
    assert.deepEqual(names({ ci: false, only: ["c", "a"] }), ["a", "c"]);
  });

  it("leaves out what is too long for every submission", () => {
    assert.deepEqual(names({ ci: true, only: undefined }), ["a", "c"]);
  });

  it("refuses a name that does not exist, naming those that do", () => {
    assert.throws(() => names({ ci: false, only: ["d"] }), /no scenario "d".*a, b, c/);
  });

  it("refuses to run nothing", () => {
    assert.throws(() => names({ ci: true, only: ["b"] }), /No scenario is left/);
  });
});
