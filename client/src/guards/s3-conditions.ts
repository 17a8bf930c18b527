import { GuardError } from "./guard-error.ts";
import type { S3Fetch } from "./s3.ts";

const PRECONDITION_FAILED = 412;
const WRONG_ETAG = '"00000000000000000000000000000000"';

/**
 * Checks that a server keeps conditions: many that call themselves compatible take the headers and ignore them, and then no
 * guard works. Writes an object and tries to write it again under two conditions that do not hold; deletes it at the end.
 * Worth a call at start-up.
 * @param scratchUrl an address in the same bucket that nothing else uses
 * @throws GuardError `guard-unsupported` when a condition was ignored; `guard-failed` when the server refused something
 */
export async function requireConditionalWrites(fetch: S3Fetch, scratchUrl: string): Promise<void> {
  const put = async (body: string, headers: Record<string, string>): Promise<number> => {
    const bytes = new TextEncoder().encode(body);
    const response = await fetch(scratchUrl, { method: "PUT", headers, body: bytes });
    await response.arrayBuffer();
    return response.status;
  };
  const first = await put("first", {});
  if (first < 200 || first > 299)
    throw new GuardError(
      "guard-failed",
      "not-applied",
      `the server refused a write with status ${String(first)}`,
    );
  try {
    for (const condition of [{ "if-none-match": "*" }, { "if-match": WRONG_ETAG }]) {
      const status = await put("second", condition);
      if (status === PRECONDITION_FAILED) continue;
      const message = `the server answered ${String(status)} to a write whose condition ${Object.keys(condition).join()} does not hold`;
      throw new GuardError("guard-unsupported", "applied", message);
    }
  } finally {
    const response = await fetch(scratchUrl, { method: "DELETE", headers: {} });
    await response.arrayBuffer();
  }
}
