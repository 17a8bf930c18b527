// The identities of a cluster: an authority of its own, made anew for each cluster.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "./command.ts";
import {
  HOST_ADDRESS,
  KUBERNETES_SERVICE,
  SLOTS,
  nodeAddressOf,
  nodeNameOf,
  pkiOf,
  type Layout,
  type Slot,
} from "./layout.ts";
import { renderKubeconfig } from "./render.ts";

/** Who a certificate stands for. */
export interface Identity {
  /** The name of its files. */
  readonly file: string;
  readonly commonName: string;
  readonly organization: string;
  /** As openssl writes them: `DNS:name`, `IP:address`. */
  readonly alternativeNames: readonly string[];
}

/** Ten years: no cluster of this kind lives that long. */
const VALID_DAYS = "3650";

export const apiserverIdentity: Identity = {
  file: "apiserver",
  commonName: "kube-apiserver",
  organization: "kubernetes",
  alternativeNames: [
    "DNS:localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
    "IP:127.0.0.1",
    `IP:${HOST_ADDRESS}`,
    `IP:${KUBERNETES_SERVICE}`,
  ],
};

const component = (file: string, commonName: string, organization: string): Identity => ({
  file,
  commonName,
  organization,
  alternativeNames: [`DNS:${file}`],
});

const componentIdentities: readonly Identity[] = [
  component("admin", "admin", "system:masters"),
  component("controller-manager", "system:kube-controller-manager", "kubernetes"),
  component("scheduler", "system:kube-scheduler", "kubernetes"),
  component("proxy", "system:kube-proxy", "system:node-proxier"),
];

/** A node's identity carries its name: the apiserver lets a kubelet touch only what belongs to its node. */
export function nodeIdentity(slot: Slot, generation: number): Identity {
  const name = nodeNameOf(slot, generation);
  return {
    file: name,
    commonName: `system:node:${name}`,
    organization: "system:nodes",
    alternativeNames: [`DNS:${name}`, `IP:${nodeAddressOf(slot)}`],
  };
}

const EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

/** Writes FILE.key, FILE.crt and FILE.kubeconfig. */
export async function issue(layout: Layout, identity: Identity): Promise<void> {
  const folder = pkiOf(layout);
  const { file } = identity;
  const openssl = (...args: readonly string[]): Promise<unknown> => run("openssl", args, { cwd: folder });
  const subject = `/O=${identity.organization}/CN=${identity.commonName}`;
  const extensions = `subjectAltName=${identity.alternativeNames.join(",")}\nextendedKeyUsage=serverAuth,clientAuth\n`;
  writeFileSync(join(folder, `${file}.ext`), extensions);
  await openssl("req", ...EC, "-keyout", `${file}.key`, "-out", `${file}.csr`, "-subj", subject);
  // A random serial number: several are issued at a time, and would share the file of a counted one.
  await openssl(
    ...["x509", "-req", "-in", `${file}.csr`, "-CA", "ca.crt", "-CAkey", "ca.key"],
    ...["-set_serial", `0x${randomSerial()}`, "-out", `${file}.crt`, "-days", VALID_DAYS],
    ...["-extfile", `${file}.ext`],
  );
  const read = (name: string): string => readFileSync(join(folder, name), "utf8");
  const kubeconfig = renderKubeconfig({
    authority: read("ca.crt"),
    certificate: read(`${file}.crt`),
    key: read(`${file}.key`),
  });
  writeFileSync(join(folder, `${file}.kubeconfig`), kubeconfig, { mode: 0o600 });
}

/** 120 bits, the first of them not zero, so that the number is positive and of one length. */
function randomSerial(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(15));
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return Buffer.from(bytes).toString("hex");
}

/** Makes the authority, the service accounts' key pair, and every identity of a new cluster. */
export async function createIdentities(layout: Layout): Promise<void> {
  const folder = pkiOf(layout);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const openssl = (...args: readonly string[]): Promise<unknown> => run("openssl", args, { cwd: folder });
  await Promise.all([
    openssl(
      "req",
      "-x509",
      ...EC,
      "-keyout",
      "ca.key",
      "-out",
      "ca.crt",
      "-subj",
      "/CN=lockstep-e2e",
      "-days",
      VALID_DAYS,
    ),
    openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", "sa.key"),
  ]);
  const identities = [
    apiserverIdentity,
    ...componentIdentities,
    ...SLOTS.map((slot) => nodeIdentity(slot, 1)),
  ];
  await Promise.all([
    openssl("ec", "-in", "sa.key", "-pubout", "-out", "sa.pub"),
    ...identities.map((identity) => issue(layout, identity)),
  ]);
}

/** The administrator's PEM texts, for a client of the apiserver. */
export function adminCredentials(layout: Layout): {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
} {
  const read = (name: string): string => readFileSync(join(pkiOf(layout), name), "utf8");
  return { ca: read("ca.crt"), cert: read("admin.crt"), key: read("admin.key") };
}
