import { Counter, Gauge } from "prom-client";
import type { Registry } from "prom-client";
import type { TlsSource } from "./tls-source.ts";

/** How long the certificate holds, and what became of new files. */
export function observeTls(registry: Registry, { source }: { readonly source: TlsSource }): void {
  const expiry: Gauge = new Gauge({
    name: "lockstep_certificate_expiry_seconds",
    help: "When this member's certificate expires, in seconds since 1970.",
    registers: [registry],
    collect: (): void => expiry.set(source.current.leafNotAfterMs / 1000),
  });
  const reloads = new Counter({
    name: "lockstep_certificate_reloads_total",
    help: "Changed certificate files, by what became of them: taken or refused.",
    labelNames: ["result"],
    registers: [registry],
  });
  for (const result of ["taken", "refused"]) reloads.inc({ result }, 0);
  source.onReload = (result) => reloads.inc({ result });
}
