/** The smallest byte string above all that start with `prefix`; empty: there is none. */
export function prefixEnd(prefix: Uint8Array): Buffer {
  let length = prefix.length;
  while (length > 0 && prefix[length - 1] === 0xff) length -= 1;
  const end = Buffer.from(prefix.subarray(0, length));
  if (length > 0) end[length - 1] = (end[length - 1] as number) + 1;
  return end;
}

/** The smallest byte string above `key`: where what follows it begins. */
export function keyAfter(key: Uint8Array): Buffer {
  const after = Buffer.alloc(key.length + 1);
  after.set(key);
  return after;
}
