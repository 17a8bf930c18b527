import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseProgramOptions } from "./options.ts";

describe("the load's flags", () => {
  it("have defaults for all but the endpoints", () => {
    const options = parseProgramOptions(["--endpoints", "a:1,b:2"]);
    assert.deepEqual(options.endpoints, ["a:1", "b:2"]);
    assert.equal(options.tlsFolder, undefined);
    assert.equal(options.listenPort, 0);
    assert.equal(options.load.writesPerSecond, 50);
  });

  for (const [args, message] of [
    [[], /--endpoints/],
    [["--endpoints", ","], /--endpoints/],
    [["--endpoints", "a:1", "--writes", "0"], /--writes must be a number above 0/],
    [["--endpoints", "a:1", "--keys", "many"], /--keys must be a number above 0/],
    [["--endpoints", "a:1", "--listen", "8080"], /--listen must be HOST:PORT/],
    [["--endpoints", "a:1", "--speed", "1"], /--speed/],
  ] as const)
    it(`${args.join(" ")}: ${String(message)}`, () => {
      assert.throws(() => parseProgramOptions(args), message);
    });
});
