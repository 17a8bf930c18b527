// The guard inside PostgreSQL. What makes it safe, whatever the isolation level (docs/guards.md has it at length):
//
// - Every admission *writes* the resource's row of marks, also when the token is the one already there, and the row's
//   lock is held until the transaction ends. So admitted transactions of one resource follow each other: a transaction
//   with a smaller token that was admitted first has ended before one with a larger token is admitted, and one that
//   comes later is refused. Commit order and token order agree.
// - A lock alone (FOR UPDATE) would do for READ COMMITTED. The write makes REPEATABLE READ and SERIALIZABLE safe too:
//   there a transaction whose snapshot is older than its predecessor's commit fails with 40001 on the row, instead of
//   going on with what it read before its predecessor's last writes.

/** SQLSTATE of a refusal. Classes that begin with I to Z belong to nobody in the standard. */
export const STALE_TOKEN_SQLSTATE = "LS001";

/** What {@link installSql} installs; `lockstep_guard_version()` answers it. Grows with every change of the SQL. */
export const GUARD_SQL_VERSION = 1;

const SIMPLE_NAME = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;
const DEFAULT_SCHEMA = "public";

/** Where the guard lives. */
export interface SchemaOptions {
  /** A schema that exists. Default: `public`. Letters, digits and underscores; case counts. */
  readonly schema?: string;
}

/** The schema, quoted. */
export function quotedSchema(options: SchemaOptions): string {
  const schema = options.schema ?? DEFAULT_SCHEMA;
  if (!SIMPLE_NAME.test(schema))
    throw new TypeError("a schema's name has letters, digits and underscores only");
  return `"${schema}"`;
}

const quoteName = (name: string): string => `"${name.replaceAll('"', '""')}"`;
const quoteText = (text: string): string => `'${text.replaceAll("'", "''")}'`;

/** One admission. `seen` is what the token must reach, `column` where it is kept. */
function admission(schema: string, column: "exclusive" | "shared", seen: string): string {
  const name = column === "exclusive" ? "lockstep_guard" : "lockstep_guard_shared";
  return `
  CREATE OR REPLACE FUNCTION ${schema}.${name}(resource text, token bigint) RETURNS void
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $guard$
  #variable_conflict use_column
  DECLARE
    seen bigint;
  BEGIN
    IF $1 IS NULL OR $1 = '' OR $2 IS NULL OR $2 < 1 OR $2 > 9007199254740991 THEN
      RAISE EXCEPTION 'a guard needs the name of a resource, and a token from 1 to 2^53 - 1' USING ERRCODE = '22023';
    END IF;
    -- Admitted by this very transaction already (a trigger asks for each row): the row is ours until the end. The stored
    -- transaction id has 64 bits and never comes again; xmin says that this transaction, in this cluster, wrote it.
    PERFORM FROM ${schema}.lockstep_marks AS mark
      WHERE mark.resource = $1 AND mark.${column} = $2 AND ${seen} <= $2
        AND mark.admitted_by = pg_current_xact_id() AND mark.xmin = pg_current_xact_id()::xid;
    IF FOUND THEN RETURN; END IF;
    INSERT INTO ${schema}.lockstep_marks AS mark (resource, ${column}, admitted_by)
      VALUES ($1, $2, pg_current_xact_id())
      ON CONFLICT (resource) DO UPDATE
        SET ${column} = greatest(mark.${column}, excluded.${column}), admitted_by = excluded.admitted_by
        WHERE ${seen} <= $2;
    IF FOUND THEN RETURN; END IF;
    SELECT ${seen} INTO seen FROM ${schema}.lockstep_marks AS mark WHERE mark.resource = $1;
    PERFORM ${schema}.lockstep_refuse($1, $2, seen);
  END
  $guard$;`;
}

const refusal = (schema: string): string => `
  CREATE OR REPLACE FUNCTION ${schema}.lockstep_refuse(resource text, offered bigint, seen bigint) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
  BEGIN
    RAISE EXCEPTION 'stale fencing token % for "%": it has seen %', $2, $1, $3
      USING ERRCODE = '${STALE_TOKEN_SQLSTATE}',
        DETAIL = json_build_object('resource', $1, 'offered', $2, 'seen', $3)::text,
        HINT = 'Ownership has passed on: stop, and do not try again with this token.';
  END
  $guard$;`;

const rowTrigger = (schema: string): string => `
  CREATE OR REPLACE FUNCTION ${schema}.lockstep_guard_row() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $guard$
  DECLARE
    offered bigint;
    seen bigint;
  BEGIN
    EXECUTE format('SELECT ($1).%I::bigint', TG_ARGV[0]) INTO offered USING NEW;
    IF offered IS NULL THEN
      RAISE EXCEPTION 'a row of "%" needs a fencing token in "%"', TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = '22004';
    END IF;
    IF TG_OP = 'UPDATE' THEN
      EXECUTE format('SELECT ($1).%I::bigint', TG_ARGV[0]) INTO seen USING OLD;
      IF offered < seen THEN
        PERFORM ${schema}.lockstep_refuse(coalesce(TG_ARGV[1], TG_TABLE_NAME), offered, seen);
      END IF;
    END IF;
    IF TG_ARGV[1] IS NOT NULL THEN
      PERFORM ${schema}.lockstep_guard(TG_ARGV[1], offered);
    END IF;
    RETURN NEW;
  END
  $guard$;`;

/**
 * SQL that installs the guard: the table `lockstep_marks`, the functions `lockstep_guard(resource text, token bigint)`
 * and `lockstep_guard_shared(resource text, token bigint)`, and the trigger function `lockstep_guard_row`. For
 * PostgreSQL 13 and newer.
 *
 * One statement, so it is atomic with `psql`, in a migration's transaction and alone. It may be run at every start and by
 * several processes at once: an installed guard of this version is left as it is, an older one replaced with its marks
 * kept, and a newer one makes it fail. The functions run with the rights of whoever installs them; nobody else may call them
 * before `GRANT EXECUTE`.
 */
export function installSql(options: SchemaOptions = {}): string {
  const schema = quotedSchema(options);
  const functions = ["lockstep_guard(text, bigint)", "lockstep_guard_shared(text, bigint)"];
  const internal = ["lockstep_guard_row()", "lockstep_refuse(text, bigint, bigint)"];
  const all = [...functions, ...internal].map((one) => `${schema}.${one}`).join(", ");
  return `DO $install$
DECLARE
  installed integer := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('lockstep_guard', 0));
  IF to_regprocedure('${schema}.lockstep_guard_version()') IS NOT NULL THEN
    EXECUTE 'SELECT ${schema}.lockstep_guard_version()' INTO installed;
  END IF;
  IF installed = ${String(GUARD_SQL_VERSION)} THEN RETURN; END IF;
  IF installed > ${String(GUARD_SQL_VERSION)} THEN
    RAISE EXCEPTION 'the installed guard has version %, newer than %', installed, ${String(GUARD_SQL_VERSION)};
  END IF;

  CREATE TABLE IF NOT EXISTS ${schema}.lockstep_marks (
    resource text PRIMARY KEY,
    exclusive bigint NOT NULL DEFAULT 0,
    shared bigint NOT NULL DEFAULT 0,
    admitted_by xid8 NOT NULL
  ) WITH (fillfactor = 50);
  COMMENT ON TABLE ${schema}.lockstep_marks IS
    'The largest fencing tokens that each guarded resource has seen. To delete a row is to let stale holders in.';
${refusal(schema)}
${admission(schema, "exclusive", "greatest(mark.exclusive, mark.shared)")}
${admission(schema, "shared", "mark.exclusive")}
${rowTrigger(schema)}

  CREATE OR REPLACE FUNCTION ${schema}.lockstep_guard_version() RETURNS integer
  LANGUAGE sql IMMUTABLE AS 'SELECT ${String(GUARD_SQL_VERSION)}';
  REVOKE ALL ON FUNCTION ${all} FROM PUBLIC;
END
$install$;`;
}

/**
 * SQL that removes the guard **with its marks**: installed again, it has forgotten every token. Fails while a trigger
 * still uses it. May be repeated.
 */
export function uninstallSql(options: SchemaOptions = {}): string {
  const schema = quotedSchema(options);
  return `DO $uninstall$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('lockstep_guard', 0));
  DROP FUNCTION IF EXISTS ${schema}.lockstep_guard_row();
  DROP FUNCTION IF EXISTS ${schema}.lockstep_guard(text, bigint);
  DROP FUNCTION IF EXISTS ${schema}.lockstep_guard_shared(text, bigint);
  DROP FUNCTION IF EXISTS ${schema}.lockstep_refuse(text, bigint, bigint);
  DROP FUNCTION IF EXISTS ${schema}.lockstep_guard_version();
  DROP TABLE IF EXISTS ${schema}.lockstep_marks;
END
$uninstall$;`;
}

/** A table whose rows carry the token of their last writer. */
export interface TriggerOptions extends SchemaOptions {
  /** The table's name, and its schema's if that is not first in the search path. */
  readonly table: string;
  readonly tableSchema?: string;
  /** The column with the token: `bigint`, or `text` with its digits. */
  readonly column: string;
  /**
   * The guarded resource that all rows belong to: each write is also checked against the resource's mark, and advances
   * it. Default: none; then each row is only compared with itself, and an earlier holder may still write every row that
   * the present one has not written yet.
   */
  readonly resource?: string;
}

const TRIGGER = "lockstep_guard";

/**
 * SQL that puts the guard on a table's inserts and updates. May be repeated. A row's token may not shrink, and must be
 * given with *every* write: an UPDATE that does not set the column keeps the last writer's token and is taken for its.
 * A DELETE carries no token: guard it in its transaction.
 */
export function triggerSql(options: TriggerOptions): string {
  const schema = quotedSchema(options);
  const table = qualified(options);
  const named = options.resource === undefined ? [] : [options.resource];
  const args = [options.column, ...named].map(quoteText).join(", ");
  return `DO $trigger$
BEGIN
  DROP TRIGGER IF EXISTS ${TRIGGER} ON ${table};
  CREATE TRIGGER ${TRIGGER} BEFORE INSERT OR UPDATE ON ${table}
    FOR EACH ROW EXECUTE FUNCTION ${schema}.lockstep_guard_row(${args});
END
$trigger$;`;
}

/** SQL that takes the guard off a table. May be repeated. */
export function dropTriggerSql(options: Pick<TriggerOptions, "table" | "tableSchema">): string {
  return `DROP TRIGGER IF EXISTS ${TRIGGER} ON ${qualified(options)};`;
}

function qualified({ table, tableSchema }: Pick<TriggerOptions, "table" | "tableSchema">): string {
  return tableSchema === undefined ? quoteName(table) : `${quoteName(tableSchema)}.${quoteName(table)}`;
}
