const TOKEN_DIGITS = 16;

/** A token as 16 digits, which sort as text the way the numbers do. */
export function tokenToString(token: number): string {
  return String(token).padStart(TOKEN_DIGITS, "0");
}
