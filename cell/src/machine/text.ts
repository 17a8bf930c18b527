/** UTF-8 for the pure folder, which has neither Buffer nor TextEncoder. Ill-formed input becomes U+FFFD. */

const REPLACEMENT = 0xfffd;

export function encodeText(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length * 3);
  let at = 0;
  for (const character of text) {
    let point = character.codePointAt(0) as number;
    if (point >= 0xd800 && point <= 0xdfff) point = REPLACEMENT;
    if (point < 0x80) {
      bytes[at++] = point;
      continue;
    }
    if (point < 0x800) {
      bytes[at++] = 0xc0 | (point >>> 6);
    } else {
      if (point < 0x10000) {
        bytes[at++] = 0xe0 | (point >>> 12);
      } else {
        bytes[at++] = 0xf0 | (point >>> 18);
        bytes[at++] = 0x80 | ((point >>> 12) & 0x3f);
      }
      bytes[at++] = 0x80 | ((point >>> 6) & 0x3f);
    }
    bytes[at++] = 0x80 | (point & 0x3f);
  }
  return bytes.subarray(0, at);
}

export function decodeText(bytes: Uint8Array): string {
  let text = "";
  let at = 0;
  while (at < bytes.length) {
    const lead = bytes[at] as number;
    if (lead < 0x80) {
      text += String.fromCharCode(lead);
      at += 1;
      continue;
    }
    const length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    const point = decodePoint(bytes, at, length);
    text += String.fromCodePoint(point ?? REPLACEMENT);
    at += point === undefined ? 1 : length;
  }
  return text;
}

const SMALLEST = [0, 0, 0x80, 0x800, 0x10000];

function decodePoint(bytes: Uint8Array, at: number, length: number): number | undefined {
  const lead = bytes[at] as number;
  if (lead < 0xc2 || lead > 0xf4 || at + length > bytes.length) return undefined;
  let point = lead & (0xff >>> (length + 1));
  for (let i = 1; i < length; i++) {
    const next = bytes[at + i] as number;
    if ((next & 0xc0) !== 0x80) return undefined;
    point = (point << 6) | (next & 0x3f);
  }
  const surrogate = point >= 0xd800 && point <= 0xdfff;
  return surrogate || point > 0x10ffff || point < (SMALLEST[length] as number) ? undefined : point;
}
