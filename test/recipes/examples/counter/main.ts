import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });

const invoices = client.counter("invoices");
const numbers = await Promise.all([invoices.add(), invoices.add(), invoices.add()]);
console.log("numbers:", numbers.join(" "));
console.log("so far:", await invoices.get());
await client.delete(invoices.key);
