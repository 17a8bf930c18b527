#!/usr/bin/env node
// `kubectl lockstep ...`: kubectl runs a program of this name from the PATH. The same as `lockstep kube ...`.
process.argv.splice(2, 0, "kube");
await import("./lockstep.mjs");
