/** What a history is made of, whatever the object under test. */

/** Points on one time line; any unit, only their order counts. */
export type Time = number;

export type Outcome<Output> =
  | { readonly kind: "ok"; readonly output: Output; readonly returnedAt: Time }
  /** It may take effect at any time after its invocation, or never. */
  | { readonly kind: "unknown" };

export interface Operation<Input, Output> {
  /** Who asked; shown to people, without meaning for a check. */
  readonly process: string;
  readonly input: Input;
  readonly invokedAt: Time;
  readonly outcome: Outcome<Output>;
}

/** Set by the history as a whole: what a model found out about one part that can be checked by itself. */
export interface Problem<State> {
  /** Names the part to people and finds it again in a smaller history. */
  readonly name: string;
  /** Positions in the history. */
  readonly members: readonly number[];
  readonly initial: State;
  /** The member must be placed: it was acknowledged, or somebody saw its effect. */
  must(member: number): boolean;
  /** The time by which a member that must be placed has taken effect. */
  deadline(member: number): Time;
  /** Members with a rank take effect in the order of their ranks; equal ranks in any order. Only for those that must be placed. */
  rank(member: number): number | undefined;
  /** Its outcome says that it changed nothing, wherever it is placed. */
  pure(member: number): boolean;
  /** Members that need not be placed and share this text have the same effect; the one invoked first is used first. */
  alike(member: number): string;
  /** The states that the member may lead to with the outcome it had; empty: it cannot take effect in `state`. */
  step(state: State, member: number): readonly State[];
  /** Equal texts, equal states. */
  key(state: State): string;
  /** Why {@link step} is empty, for people. */
  explain(state: State, member: number): string;
}

export interface Model<Input, Output, State> {
  /** Splits a history into parts that are linearizable independently of each other. */
  problems(operations: readonly Operation<Input, Output>[]): readonly Problem<State>[];
  describe(operation: Operation<Input, Output>): string;
  describeState(problem: Problem<State>, state: State): string;
}
