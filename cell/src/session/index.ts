export { createSessionKeeper } from "./keeper.ts";
export type { RenewalAnswer, SessionKeeper, SessionOptions, SessionWork } from "./types.ts";
