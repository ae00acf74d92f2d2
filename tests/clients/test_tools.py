"""What tools with a window ask a server: DBeaver's and Metabase's catalog queries, and charts.

The tools themselves are not here: these are the questions that their sources send, in our words.
"""

import psycopg
import pytest

from tests.server.serving import NAMES

NAMESPACE = "(SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1)"
CATALOG = "LEFT JOIN pg_catalog.pg_description d ON d.objoid"
DBEAVER = {  # as its tree is opened, from the connection down to a table; some answers must hold
    "version": ("SELECT version()", "PostgreSQL"),
    "session": ("SELECT current_schema(), session_user", "alice"),
    "path": ("SHOW search_path", "public"),
    "set path": ('SET search_path = public, "$user"', None),
    "application": ("SET application_name = 'DBeaver - Main'", None),
    "floats": ("SET extra_float_digits = 3", None),
    "keywords": ("SELECT string_agg(word, ',') FROM pg_catalog.pg_get_keywords()", "select"),
    "probe": ("SELECT typcategory FROM pg_catalog.pg_type WHERE 1<>1 LIMIT 1", None),
    "databases": (
        "SELECT db.oid, db.* FROM pg_catalog.pg_database db "
        "WHERE NOT datistemplate AND datallowconn",
        "cps1988",
    ),
    "roles": ("SELECT a.oid, a.* FROM pg_catalog.pg_roles a ORDER BY a.oid", "alice"),
    "settings": ("SELECT * FROM pg_catalog.pg_settings", "statement_timeout"),
    "extensions": ("SELECT e.oid, e.* FROM pg_catalog.pg_extension e ORDER BY e.oid", "plpgsql"),
    "sessions": ("SELECT sa.* FROM pg_catalog.pg_stat_activity sa", "alice"),
    "locks": ("SELECT * FROM pg_catalog.pg_locks", None),
    "schemas": (
        f"SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n {CATALOG} = n.oid "
        "AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass ORDER BY nspname",
        "privacy",
    ),
    "types": (
        "SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base, "
        "d.description FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type et "
        f"ON et.oid = t.typelem LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid {CATALOG} "
        "= t.oid WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') "
        "AND (et.typcategory IS NULL OR et.typcategory <> 'C') AND t.typnamespace = "
        "'pg_catalog'::regnamespace",
        "float8",
    ),
    "relations": (
        f"SELECT c.oid, c.*, d.description FROM pg_catalog.pg_class c {CATALOG} = c.oid AND "
        "d.objsubid = 0 AND d.classoid = 'pg_class'::regclass "
        f"WHERE c.relnamespace = {NAMESPACE} AND c.relkind NOT IN ('i', 'I', 'c')",
        "March 1988",
    ),
    "columns": (
        "SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, "
        "d.description FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c "
        "ON a.attrelid = c.oid LEFT JOIN pg_catalog.pg_attrdef ad ON a.attrelid = ad.adrelid "
        f"AND a.attnum = ad.adnum {CATALOG} = c.oid AND a.attnum = d.objsubid "
        f"WHERE NOT a.attisdropped AND c.relnamespace = {NAMESPACE} ORDER BY a.attnum",
        "measure, clipped to [0, 2000]",
    ),
    "constraints": (
        "SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace "
        "FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class t ON t.oid = c.conrelid "
        "LEFT JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid "
        f"WHERE t.relnamespace = {NAMESPACE} ORDER BY c.oid",
        None,
    ),
    "indexes": (
        "SELECT i.*, i.indkey AS keys, c.relname, tc.relname AS tabrelname, "
        "pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr FROM pg_catalog.pg_index i "
        "JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid "
        f"WHERE c.relnamespace = {NAMESPACE}",
        None,
    ),
    "triggers": (
        "SELECT x.oid, x.*, p.pronamespace FROM pg_catalog.pg_trigger x "
        "LEFT JOIN pg_catalog.pg_proc p ON p.oid = x.tgfoid "
        "WHERE x.tgrelid = 'public.cps1988'::regclass",
        None,
    ),
    "policies": ("SELECT * FROM pg_catalog.pg_policies WHERE tablename = 'cps1988'", "only"),
    "rules": ("SELECT * FROM pg_catalog.pg_rules WHERE tablename = 'cps1988'", None),
    "sizes": (
        "SELECT pg_catalog.pg_total_relation_size('public.cps1988'::regclass), "
        "pg_catalog.pg_relation_size('public.cps1988'::regclass)",
        None,
    ),
    "privileges": (
        "SELECT * FROM information_schema.table_privileges WHERE table_schema = 'public'",
        "SELECT",
    ),
}
METABASE = {  # as it synchronises
    "time zone": ("show timezone;", None),
    "tables": (
        "SELECT n.nspname, c.relname, CASE c.relkind WHEN 'r' THEN 'TABLE' ELSE NULL END AS type, "
        f"d.description, stat.n_live_tup FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
        f"ON c.relnamespace = n.oid {CATALOG} = c.oid AND d.objsubid = 0 AND d.classoid = "
        "'pg_class'::regclass LEFT JOIN pg_stat_user_tables stat ON n.nspname = stat.schemaname "
        "AND c.relname = stat.relname WHERE n.nspname !~ '^pg_' "
        "AND n.nspname <> 'information_schema' AND c.relkind IN ('r', 'p', 'v', 'f', 'm')",
        "cps1988",
    ),
    "privileges": (
        "WITH table_privileges AS (SELECT NULL AS role, t.schemaname AS schema, "
        "t.objectname AS table, pg_catalog.has_any_column_privilege(current_user, "
        "format('%I.%I', t.schemaname, t.objectname), 'UPDATE') AS update, "
        "pg_catalog.has_table_privilege(current_user, format('%I.%I', t.schemaname, t.objectname), "
        "'SELECT') AS select FROM (SELECT schemaname, tablename AS objectname "
        "FROM pg_catalog.pg_tables UNION SELECT schemaname, viewname FROM pg_views) t "
        "WHERE t.schemaname !~ '^pg_' AND t.schemaname <> 'information_schema') "
        "SELECT t.* FROM table_privileges t WHERE t.select AND NOT t.update",
        "cps1988",
    ),
    "fields": (
        "SELECT c.column_name, c.udt_name, c.ordinal_position - 1, pk.column_name IS NOT NULL, "
        "col_description(CAST(CAST(format('%I.%I', CAST(c.table_schema AS text), "
        "CAST(c.table_name AS text)) AS regclass) AS oid), c.ordinal_position) "
        "FROM information_schema.columns c LEFT JOIN (SELECT tc.table_schema, tc.table_name, "
        "kc.column_name FROM information_schema.table_constraints tc "
        "JOIN information_schema.key_column_usage kc ON tc.constraint_name = kc.constraint_name "
        "AND tc.table_schema = kc.table_schema AND tc.table_name = kc.table_name "
        "WHERE tc.constraint_type = 'PRIMARY KEY') pk ON c.table_schema = pk.table_schema "
        "AND c.table_name = pk.table_name AND c.column_name = pk.column_name "
        "WHERE c.table_schema !~ '^information_schema|catalog_history|pg_'",
        "measure, clipped to [0, 2000]",
    ),
    "enumerations": (
        "SELECT nspname, typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace "
        "WHERE t.oid IN (SELECT DISTINCT enumtypid FROM pg_enum e)",
        None,
    ),
    "indexes": (
        "SELECT tmp.s, tmp.t, trim(BOTH '\"' FROM pg_catalog.pg_get_indexdef(tmp.o, tmp.pos, "
        "false)) FROM (SELECT n.nspname AS s, ct.relname AS t, ci.oid AS o, "
        "(information_schema._pg_expandarray(i.indkey)).n AS pos FROM pg_catalog.pg_class ct "
        "JOIN pg_catalog.pg_namespace n ON ct.relnamespace = n.oid JOIN pg_catalog.pg_index i "
        "ON ct.oid = i.indrelid JOIN pg_catalog.pg_class ci ON ci.oid = i.indexrelid "
        "WHERE pg_catalog.pg_get_expr(i.indpred, i.indrelid) IS NULL) tmp WHERE tmp.pos = 1 "
        "AND tmp.s = 'public'",
        None,
    ),
}
TABLE = '"public"."cps1988"'
REGION = f'{TABLE}."region"'
METABASE_SAYS = "-- Metabase:: userID: 1 queryType: MBQL queryHash: 0123456789abcdef\n"
CHARTS = {  # grouped by region, in its order
    "DBeaver, grouping panel": "SELECT region, COUNT(*) FROM public.cps1988 GROUP BY region "
    "ORDER BY region",
    "Metabase": f'{METABASE_SAYS}SELECT {REGION} AS "region", COUNT(*) AS "count" FROM {TABLE} '
    f"GROUP BY {REGION} ORDER BY {REGION} ASC",
    "Metabase, with a limit": f'{METABASE_SAYS}SELECT "source"."region" AS "region", '
    f'"source"."count" AS "count" FROM (SELECT {REGION} AS "region", COUNT(*) AS "count" '
    f'FROM {TABLE} GROUP BY {REGION} ORDER BY {REGION} ASC) AS "source" LIMIT 1048575',
    "Metabase, a filter": f'SELECT {REGION} AS "region", COUNT(*) AS "count" FROM {TABLE} '
    f"WHERE ({TABLE}.\"smsa\" = 'yes') OR ({TABLE}.\"smsa\" = 'no') GROUP BY {REGION} "
    f"ORDER BY {REGION} ASC",
    "Metabase, values of a field": f'SELECT {REGION} AS "region" FROM {TABLE} '
    f"GROUP BY {REGION} ORDER BY {REGION} ASC LIMIT 1000",
    "Superset": 'SELECT region AS region, COUNT(*) AS "count" FROM public.cps1988 '
    "GROUP BY region ORDER BY region LIMIT 1000;\n\n",
    "Grafana": 'SELECT region AS metric, COUNT(*) AS "value" FROM cps1988 '
    "WHERE education BETWEEN 0 AND 18 GROUP BY 1 ORDER BY 1",
}
PREVIEWS = [
    "SELECT x.* FROM public.cps1988 x",
    "SELECT * FROM public.cps1988 LIMIT 200 OFFSET 0",
    f'SELECT {TABLE}."education" AS "education", {REGION} AS "region" FROM {TABLE} LIMIT 2000',
    f'SELECT SUBSTRING({REGION}, 1, 1234) AS "s", {TABLE}."wage" AS "wage" FROM {TABLE} '
    "LIMIT 10000",
    "SELECT education AS education, experience AS experience FROM public.cps1988 LIMIT 100",
]


@pytest.fixture(scope="module")
def client(server):
    with server.connect(options="-c privacy.utility=500,0.05") as connection:
        yield psycopg.RawCursor(connection)


@pytest.mark.parametrize(
    "text, word", [*DBEAVER.values(), *METABASE.values()], ids=[*DBEAVER, *METABASE]
)
def test_catalogs_are_browsed(client, text, word):
    """
    Every question about the catalogs is answered, the dataset in it where it belongs.
    """
    cursor = client.execute(text, ["public"] if "$1" in text else ())
    rows = cursor.fetchall() if cursor.description else []
    assert word is None or any(word in str(value) for row in rows for value in row)


@pytest.mark.parametrize("text", CHARTS.values(), ids=CHARTS)
def test_charts_are_drawn(client, text):
    """
    What the tools make of a grouping is answered, with the utility of the connection.
    """
    assert [row[0] for row in client.execute(text, ()).fetchall()] == NAMES


@pytest.mark.parametrize("text", PREVIEWS)
def test_previews_of_rows_are_refused(client, text):
    """
    A look at rows is refused, with a question that could be asked instead.
    """
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="only aggregates") as caught:
        client.execute(text, ())
    instead = caught.value.diag.message_hint.partition("for example ")[2]
    assert client.execute(f"EXPLAIN UTILITY {instead}", ()).fetchall()
