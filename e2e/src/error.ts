/** Why the harness could not go on. `missing`: the machine lacks something; `busy`: another run holds the cluster; `command`: a program that it started failed; `timeout`: something did not happen in its time; `state`: a call makes no sense now. */
export type E2eErrorCode = "missing" | "busy" | "command" | "timeout" | "state" | "interrupted";

/** The one error class of this package: a sentence for a person, and a stable code. */
export class E2eError extends Error {
  readonly code: E2eErrorCode;

  constructor(code: E2eErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "E2eError";
    this.code = code;
  }
}
