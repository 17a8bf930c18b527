// Run anew for every measurement, beside an installed client: from the moment it asks for the library to the first answer.
const [endpoint = "", where] = process.argv.slice(2);
let threadAt: number | undefined;
// Node tells of every thread that is begun.
process.on("worker", (worker: { once(event: "online", listener: () => void): unknown }) => {
  worker.once("online", () => (threadAt = performance.now()));
});

const began = performance.now();
const { connect } = await import("@lockstep/client");
const imported = performance.now();
const client = await connect({ endpoints: [endpoint], worker: where === "thread" });
const connected = performance.now();
await client.get("/startup");
const answered = performance.now();
client.close();

const figures = {
  importMs: imported - began,
  threadMs: threadAt === undefined ? 0 : threadAt - imported,
  connectedMs: connected - (threadAt ?? imported),
  firstAnswerMs: answered - connected,
  totalMs: answered - began,
};
process.stdout.write(`${JSON.stringify(figures)}\n`);
