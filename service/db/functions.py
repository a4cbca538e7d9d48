"""What PostgreSQL is taught, so that columns and conditions are rendered with the same words on both databases."""

# The words of SQLite; the digits of a number are the same on both.
FUNCTIONS = (
    """CREATE OR REPLACE FUNCTION json_quote(text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
        AS $$ SELECT coalesce(to_json($1)::text, 'null') $$""",
    """CREATE OR REPLACE FUNCTION json_quote(bigint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
        AS $$ SELECT coalesce($1::text, 'null') $$""",
    # With 15 digits, as SQLite is told to: the shortest text that PostgreSQL finds for a number may have more.
    r"""CREATE OR REPLACE FUNCTION printf(text, double precision) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
        AS $$ SELECT CASE WHEN $2 = 0 OR abs($2) >= 1e-4 AND abs($2) < 1e15
            THEN regexp_replace($2::numeric::text, '^(-?\d+)$', '\1.0')
            ELSE regexp_replace(ltrim(to_char($2, '9.99999999999999EEEE')), '(\.\d+?)0*e', '\1e') END $$""",
)
