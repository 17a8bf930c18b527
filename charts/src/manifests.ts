import { helmTemplate } from "./helm.ts";

/** Of the release's name and namespace; a Deployment named after both would only be longer. */
const RELEASE = { release: "lockstep", namespace: "lockstep-system" } as const;

/** What only Helm understands; nobody is to see it in objects that Helm does not manage. */
const HELM_ONLY = /^ +(helm\.sh\/chart|app\.kubernetes\.io\/managed-by): .*\n/gm;

const HEAD = `# Lockstep's operator and its definitions, for kubectl:
#
#   kubectl apply --server-side -f deploy/lockstep.yaml
#
# (--server-side, because the definitions are larger than the annotation that a client-side apply keeps.)
# Generated from charts/lockstep by charts/src/main.ts, with the chart's default values.
apiVersion: v1
kind: Namespace
metadata:
  name: ${RELEASE.namespace}
  labels:
    app.kubernetes.io/part-of: lockstep
    # The operator and cells run in the strictest profile.
    pod-security.kubernetes.io/enforce: restricted
`;

/** The whole installation as one file, with a namespace of its own. Needs helm. */
export function plainManifests(helm: string, chart: string): string {
  const text = helmTemplate(helm, chart, { ...RELEASE, set: ["test.enabled=false"] });
  return HEAD + text.replace(HELM_ONLY, "");
}
