/** The last step of a deletion: what a cell has once is taken away by name, since no owner reference does it. */
import { NETWORK_POLICY, POD_DISRUPTION_BUDGET, SERVICE, SERVICE_ACCOUNT } from "../api/kinds.ts";
import { identityOf, LABEL } from "../api/labels.ts";
import {
  clientServiceName,
  disruptionBudgetName,
  networkPolicyName,
  peersServiceName,
  serviceAccountName,
} from "../api/names.ts";
import type { CoordinationCell } from "../api/types.ts";
import type { KubeClient, KubeObject, ObjectRef, ResourceKind } from "../kube/types.ts";

export interface Named {
  readonly kind: ResourceKind;
  readonly ref: ObjectRef;
}

/** All that a cell of this name may have once, whatever the operator's settings were when it was made. */
export function sharedNames({ namespace, name }: ObjectRef): readonly Named[] {
  const here = (kind: ResourceKind, its: string): Named => ({
    kind,
    ref: { ...(namespace === undefined ? {} : { namespace }), name: its },
  });
  return [
    here(SERVICE, clientServiceName(name)),
    here(SERVICE, peersServiceName(name)),
    here(POD_DISRUPTION_BUDGET, disruptionBudgetName(name)),
    here(NETWORK_POLICY, networkPolicyName(name)),
    here(SERVICE_ACCOUNT, serviceAccountName(name)),
  ];
}

/** Takes away what carries this cell's uid; what is somebody else's stays. Again, it does nothing. */
export async function releaseShared(kube: KubeClient, cell: CoordinationCell): Promise<void> {
  const { uid } = identityOf(cell);
  for (const named of sharedNames(identityOf(cell))) {
    await deleteIf(kube, named, ({ metadata }) => metadata.labels?.[LABEL.cellUid] === uid);
  }
}

/** Deletes the very object that was looked at, if it is there and `may` says so. */
export async function deleteIf(
  kube: KubeClient,
  { kind, ref }: Named,
  may: (object: KubeObject) => boolean,
): Promise<void> {
  const object = await kube.get(kind, ref);
  const uid = object?.metadata.uid;
  if (object === undefined || uid === undefined || !may(object)) return;
  await kube.delete(kind, ref, { uid });
}
