"""Functions that are added to PostgreSQL, so that SQL that renders columns and conditions is the same as for SQLite."""

# Named as in SQLite. Numbers are rendered with the same digits. If the first were IMMUTABLE, it would not be inlined,
# because to_json is STABLE, and would take several times as long.
FUNCTIONS = (
    """CREATE OR REPLACE FUNCTION json_quote(text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
        AS $$ SELECT coalesce(to_json($1)::text, 'null') $$""",
    """CREATE OR REPLACE FUNCTION json_quote(bigint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
        AS $$ SELECT coalesce($1::text, 'null') $$""",
    # With 15 digits, as in SQLite with `%!.15g`: PostgreSQL's shortest text of a number may have more.
    r"""CREATE OR REPLACE FUNCTION printf(text, double precision) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
        AS $$ SELECT CASE WHEN $2 = 0 OR abs($2) >= 1e-4 AND abs($2) < 1e15
            THEN regexp_replace($2::numeric::text, '^(-?\d+)$', '\1.0')
            ELSE regexp_replace(ltrim(to_char($2, '9.99999999999999EEEE')), '(\.\d+?)0*e', '\1e') END $$""",
)
