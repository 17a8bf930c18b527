/** Where a door tells what an operator should know. Never called per request on a hot path. */
export type DoorLog = (
  level: "info" | "warn" | "error",
  message: string,
  fields?: Readonly<Record<string, string | number | boolean>>,
) => void;

export const NO_LOG: DoorLog = () => undefined;
