/** The command that replays a history, to be copied from a failure. */
export function replayCommand(seed: number, canary: string | undefined): string {
  const command = `npm run sim -- --seed ${String(seed)} --trace`;
  if (canary === undefined) return command;
  return `LOCKSTEP_CANARY=${canary} node --import ./test/sim/canaries/register.ts test/sim/main.ts --seed ${String(seed)} --trace`;
}
