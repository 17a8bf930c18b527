/** What a sequential key ends with, and what a token is as text. */
export const SEQUENCE_DIGITS = 16;

/** A token as 16 digits, which sort as text the way the numbers do. */
export function tokenToString(token: number): string {
  return String(token).padStart(SEQUENCE_DIGITS, "0");
}
