import { GrpcCode } from "./grpc/call.ts";
import { HTTP_STATUS_MAP, STATUS_MAP } from "./status-map.ts";

const HEAD = `# Errors

Every refusal has a stable **code**, an **outcome** and a sentence for people. Match on the code and the outcome, never
on the sentence.

The outcome says whether the change was made: \`not-applied\`, \`applied\` or \`unknown\`. Only reads and \`not-applied\` may be
repeated without a request id. With a request id (\`Request-ID\` over HTTP, client id and sequence or a token over gRPC) a
mutation may always be repeated: it runs once and the first outcome is returned.

Where they appear:

- **HTTP**: the status below, and a body of type \`application/problem+json\` with \`type\` (\`urn:lockstep:error:CODE\`), \`title\`,
  \`status\`, \`detail\`, \`code\`, \`outcome\`, and where they apply \`compactRevision\` and \`retryAfterMs\` (also the header \`Retry-After\`).
- **Native gRPC**: a \`Failure\` in the answer of the request, while the call itself is OK. A call or stream that is refused
  as a whole ends with the gRPC status below and the code in the trailing metadata \`lockstep-code\`.

This page is rendered from \`gateway/src/status-map.ts\`; a test keeps the two the same.

## Codes of the service

| code | HTTP | gRPC | outcome | meaning | what to do |
|---|---|---|---|---|---|
`;

const HTTP_HEAD = `
## Codes of the HTTP door alone

| code | HTTP | outcome | meaning | what to do |
|---|---|---|---|---|
`;

/** The text of docs/errors.md. */
export function renderErrorsPage(): string {
  const rows = Object.entries(STATUS_MAP).map(
    ([code, entry]) =>
      `| \`${code}\` | ${entry.http} | ${entry.grpc} (${GrpcCode[entry.grpc]}) | ${entry.outcome} | ${entry.meaning} | ${entry.remedy} |`,
  );
  const httpRows = Object.entries(HTTP_STATUS_MAP).map(
    ([code, entry]) =>
      `| \`${code}\` | ${entry.http} | ${entry.outcome} | ${entry.meaning} | ${entry.remedy} |`,
  );
  return `${HEAD}${rows.join("\n")}\n${HTTP_HEAD}${httpRows.join("\n")}\n`;
}
