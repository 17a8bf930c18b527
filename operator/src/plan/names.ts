/** Without vowels and look-alikes: no words by accident, and safe in a DNS label. */
const ALPHABET = "bcdfghjkmnpqrstvwxz2456789";

/** Deterministic; spreads over 26^length. Not for secrets. */
function shortHash(text: string, length: number): string {
  let high = 0x811c9dc5;
  let low = 0x9747b28c;
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i);
    high = Math.imul(high ^ code, 0x01000193) >>> 0;
    low = Math.imul((low + code) ^ (low >>> 13), 0x5bd1e995) >>> 0;
    high = (high ^ (low >>> 7)) >>> 0;
  }
  let rest = BigInt(high) * 0x100000000n + BigInt(low);
  let word = "";
  for (let i = 0; i < length; i += 1) {
    word += ALPHABET[Number(rest % BigInt(ALPHABET.length))] ?? "";
    rest /= BigInt(ALPHABET.length);
  }
  return word;
}

/** An id that no other operation of this cell has: it depends on the moment at which the operation is begun. */
export function operationId(cellUid: string, kind: string, nowMs: number): string {
  return shortHash(`${cellUid}/${kind}/${String(nowMs)}`, 8);
}

/**
 * `count` names for new members. The same operation always gets the same ones while `taken` does not change, and they
 * are written to the status before the first is made.
 */
export function memberNames(
  cell: string,
  id: string,
  count: number,
  taken: ReadonlySet<string>,
): readonly string[] {
  const names: string[] = [];
  for (let salt = 0; names.length < count; salt += 1) {
    const name = `${cell}-${shortHash(`${id}/${String(salt)}`, 5)}`;
    if (!taken.has(name) && !names.includes(name)) names.push(name);
  }
  return names;
}
