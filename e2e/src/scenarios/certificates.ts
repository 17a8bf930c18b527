// A cell's authority is changed under load: at no moment is a write refused, and in the end nobody trusts the old one.
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { connect } from "node:tls";
import { Cell, installOperator, isTrue, OPERATOR_NAMESPACE } from "../lockstep.ts";
import { describePhase } from "../load-client.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import { secondsSince, startSparedLoad } from "./steps.ts";

/** Applications tell nobody what they have loaded, so each of two phases waits so long for them. */
const CLIENT_OVERLAP = "1m";
const ROTATION_MS = 10 * 60_000;
const GAP_MS_MAX = 1_000;
const CLIENT_PORT = 7400;

interface SecretObject {
  readonly data?: Readonly<Record<string, string>>;
}

async function secretText(
  context: ScenarioContext,
  namespace: string,
  name: string,
): Promise<Readonly<Record<string, string>>> {
  const { data = {} } = await context.cluster.kubectlJson<SecretObject>(
    ["get", "secret", name, "--namespace", namespace],
    { signal: context.signal },
  );
  const decoded = Object.entries(data).map(([key, text]) => [
    key,
    Buffer.from(text, "base64").toString("utf8"),
  ]);
  return Object.fromEntries(decoded) as Readonly<Record<string, string>>;
}

const fingerprint = (pem: string | undefined): string => new X509Certificate(pem ?? "").fingerprint256;

interface Door {
  readonly host: string;
  readonly authority: string;
  readonly client: Readonly<Record<string, string>>;
}

/** Shakes hands with a member. @returns the serial number of its certificate, which `authority` alone has signed */
function serialAt({ host, authority, client }: Door): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({
      host,
      port: CLIENT_PORT,
      ca: authority,
      cert: client["tls.crt"],
      key: client["tls.key"],
      minVersion: "TLSv1.3",
      timeout: 5_000,
      // Members are named by a URI of the cell, not by the address that they are called at.
      checkServerIdentity: () => undefined,
    });
    socket.once("secureConnect", () => {
      const { serialNumber } = socket.getPeerCertificate();
      socket.destroy();
      resolve(serialNumber);
    });
    socket.once("timeout", () => socket.destroy(new Error(`${host} does not answer`)));
    socket.once("error", reject);
  });
}

/** The serial number of each member's certificate as it serves it now, by its pod's name. */
async function servedSerials(
  context: ScenarioContext,
  cell: Cell,
  authority: string,
): Promise<ReadonlyMap<string, string>> {
  interface Addressed {
    readonly metadata: { readonly name: string };
    readonly status?: { readonly podIP?: string };
  }
  const client = await secretText(context, context.namespace, `${cell.name}-client`);
  const { items } = await context.kubectlJson<{ readonly items: readonly Addressed[] }>([
    ...["get", "pods", `--selector=lockstep.dev/cell=${cell.name},app.kubernetes.io/component=member`],
  ]);
  const served = new Map<string, string>();
  for (const { metadata, status } of items)
    served.set(metadata.name, await serialAt({ host: status?.podIP ?? "", authority, client }));
  return served;
}

/** Secrets are read every ten minutes, and at once under a changed spec. */
async function haveSecretsRead(cell: Cell, clientOverlap: string): Promise<void> {
  await cell.patch({ tls: { clientOverlap } });
}

/** Waits through the phases, and prints each with its time. */
async function rotate(context: ScenarioContext, cell: Cell, authoritySecret: string): Promise<void> {
  await context.cluster.kubectl([
    ...["annotate", "secret", authoritySecret, "lockstep.dev/rotate=true", "--overwrite"],
    ...["--namespace", OPERATOR_NAMESPACE],
  ]);
  await haveSecretsRead(cell, CLIENT_OVERLAP);
  let phase = "steady";
  const seen: string[] = [];
  const started = performance.now();
  await context.until(
    "the authority has been changed",
    async () => {
      const { phase: now = "" } = await secretText(context, OPERATOR_NAMESPACE, authoritySecret);
      if (now !== phase) {
        phase = now;
        seen.push(now);
        context.say(`${now} ${secondsSince(started)} after it was asked for`);
      }
      const object = await cell.get();
      assert.equal(object.status?.readyVoters, 3, "no member is restarted for it");
      return seen.at(-1) === "steady";
    },
    { timeoutMs: ROTATION_MS, everyMs: 1_000 },
  );
  assert.deepEqual(seen, ["trusting", "reissuing", "retiring", "steady"]);
}

/** A member's Secret that somebody deletes is made anew, and the member loads the new leaf while it serves. */
async function renewLeaf(context: ScenarioContext, cell: Cell, authority: string): Promise<void> {
  const before = await servedSerials(context, cell, authority);
  const [[member, serial] = ["", ""]] = [...before];
  const started = performance.now();
  await context.kubectl(["delete", "secret", `${member}-tls`]);
  await haveSecretsRead(cell, "2m");
  await context.until(
    `${member} serves another certificate`,
    async () => (await servedSerials(context, cell, authority)).get(member) !== serial,
    { timeoutMs: 10 * 60_000, everyMs: 2_000 },
  );
  context.say(`${member} serves a new leaf ${secondsSince(started)} after its Secret was deleted`);
}

export const certificates: Scenario = {
  name: "certificates",
  about: "a leaf made anew and the authority changed under load, without a failed write or a restart",
  ci: false,
  minutes: 20,
  run: async (context) => {
    await installOperator(context);
    const { cell } = await Cell.create(context);
    const { metadata } = await cell.get();
    const authoritySecret = `cell-${metadata.uid}-ca`;
    const load = await startSparedLoad(context, cell);
    const old = (await secretText(context, OPERATOR_NAMESPACE, authoritySecret))["current.crt"] ?? "";
    await load.mark("leaf");
    await renewLeaf(context, cell, old);
    const leaf = await load.report();
    context.say(describePhase(leaf));

    await load.mark("authority");
    await rotate(context, cell, authoritySecret);
    const fresh = (await secretText(context, OPERATOR_NAMESPACE, authoritySecret))["current.crt"] ?? "";
    assert.notEqual(fingerprint(fresh), fingerprint(old));
    const served = await servedSerials(context, cell, fresh);
    assert.equal(served.size, 3, "every member serves a leaf of the new authority");
    await assert.rejects(servedSerials(context, cell, old), "and none of the old one");
    for (const member of served.keys()) {
      const { "ca.crt": trusted = "" } = await secretText(context, context.namespace, `${member}-tls`);
      assert.deepEqual([...trusted.matchAll(/BEGIN CERTIFICATE/g)].length, 1);
      assert.equal(fingerprint(trusted), fingerprint(fresh));
    }
    assert.ok(isTrue(await cell.get(), "CertificatesValid"));
    await cell.checkAtRest();
    const authority = await load.report();
    context.say(describePhase(authority));
    await load.verify();
    for (const { current } of [leaf, authority]) {
      assert.deepEqual([current.failed, current.unknown], [0, 0], `no write fails: ${current.name}`);
      assert.ok(current.longestWriteGapMs <= GAP_MS_MAX, `no gap over 1 s: ${current.name}`);
    }
  },
};
