import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type AddressInfo } from "node:net";
import { test } from "node:test";
import { underlying } from "./connect-error.ts";

test("when every address of a name refuses, the reason names all of them", async () => {
  // A port that was free a moment ago.
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  const addresses = ["127.0.0.1", "127.0.0.2"].map((address) => ({ address, family: 4 }));
  const socket = connect({
    ...{ host: "cell.example", port, autoSelectFamily: true },
    lookup: (_name, _options, found) => found(null, addresses),
  });
  const [error] = (await once(socket, "error").catch((thrown: unknown) => [thrown])) as [Error];
  const refused = addresses.map(({ address }) => `connect ECONNREFUSED ${address}:${String(port)}`);
  assert.equal(underlying(error).message, refused.join(", "));
});

test("a cancelled stream's reason is why its connection did not come about", () => {
  const cause = new Error("connect ECONNREFUSED 127.0.0.1:1");
  assert.equal(underlying(new Error("The pending stream has been canceled", { cause })), cause);
  assert.equal(underlying(cause), cause);
});
