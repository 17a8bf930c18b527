// The wire: everything generated from the .proto sources, by module. Doors and clients use `coordination`,
// operators and the CLI `admin`.
export * as admin from "./gen/lockstep/v1/admin.ts";
export * as coordination from "./gen/lockstep/v1/coordination.ts";
