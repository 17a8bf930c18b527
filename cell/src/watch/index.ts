export { createWatchHub } from "./hub.ts";
export type { HistorySource, HubWatchRequest, WatchHub, WatchHubOptions } from "./types.ts";
