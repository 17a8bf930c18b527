import type { KubeObject, ResourceKind } from "../types.ts";

/** A kind for tests. */
export interface Widget extends KubeObject {
  readonly spec?: { readonly size?: number; readonly color?: string; readonly parts?: readonly string[] };
  readonly status?: { readonly ready?: boolean };
}

export const WIDGETS: ResourceKind<Widget> = {
  apiVersion: "example.com/v1",
  kind: "Widget",
  plural: "widgets",
  namespaced: true,
};

export function widget(name: string, spec: Widget["spec"] = {}, labels: Record<string, string> = {}): Widget {
  return {
    apiVersion: WIDGETS.apiVersion,
    kind: WIDGETS.kind,
    metadata: { namespace: "shop", name, labels },
    spec,
  };
}
