import type { Dice } from "../contract.ts";

/** How the network treats traffic; the probabilities are per message. */
export interface NetworkProfile {
  readonly delayUsMin: number;
  readonly delayUsMax: number;
  /** Lost for good; on a stream only late, as TCP sends it again. */
  readonly loss: number;
  readonly duplication: number;
  /** Held back for up to `reorderingUsMax`, so that later ones overtake it. */
  readonly reordering: number;
  readonly reorderingUsMax: number;
  /** Held back for up to `longDelayUsMax`: arrives when nobody waits for it any more. */
  readonly longDelay: number;
  readonly longDelayUsMax: number;
  /** After how long, on average, the network resets a connection; 0: never. */
  readonly connectionLifeUsMean: number;
  /** Bytes that one direction of a connection takes on before its sender has to wait. */
  readonly streamWindowBytes: number;
}

/** A good local network. */
export const CALM_NETWORK: NetworkProfile = {
  delayUsMin: 100,
  delayUsMax: 500,
  loss: 0,
  duplication: 0,
  reordering: 0,
  reorderingUsMax: 0,
  longDelay: 0,
  longDelayUsMax: 0,
  connectionLifeUsMean: 0,
  streamWindowBytes: 256 * 1024,
};

/** A network as bad as `wildness` (0: calm, 1: as bad as it gets) allows; every fault has a chance to be absent. */
export function drawNetworkProfile(dice: Dice, wildness: number): NetworkProfile {
  if (wildness <= 0) return CALM_NETWORK;
  const some = (highest: number): number => (dice.chance(0.7) ? dice.random() * highest * wildness : 0);
  const delayUsMin = dice.between(50, 1_000);
  return {
    delayUsMin,
    delayUsMax: delayUsMin + dice.between(0, Math.round(40_000 * wildness)),
    loss: some(0.1),
    duplication: some(0.1),
    reordering: some(0.2),
    reorderingUsMax: dice.between(1_000, 300_000),
    longDelay: some(0.002),
    longDelayUsMax: dice.between(1_000_000, 180_000_000),
    connectionLifeUsMean: dice.chance(0.6 * wildness) ? dice.between(2_000_000, 60_000_000) : 0,
    streamWindowBytes: 1024 * 2 ** dice.between(2, 10),
  };
}
