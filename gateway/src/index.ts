export * from "./coordinator/index.ts";
