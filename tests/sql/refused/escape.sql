-- a file as a table
-- error: UndefinedTableError
-- says: relation "survey.csv" does not exist
-- at: 'survey.cs
SELECT COUNT(*) FROM 'survey.csv'

-- a function that reads files
-- error: NotSupportedError
-- says: FROM takes tables and subqueries, not READ_CSV('/etc/passwd')
-- at: read_csv('
SELECT COUNT(*) FROM read_csv('/etc/passwd')

-- a quoted file name
-- error: UndefinedTableError
-- says: relation "/etc/passwd" does not exist
-- at: "/etc/pass
SELECT COUNT(*) FROM "/etc/passwd"

-- DuckDB's settings
-- error: NotSupportedError
-- says: FROM takes tables and subqueries, not DUCKDB_SETTINGS()
-- at: duckdb_set
SELECT COUNT(*) FROM duckdb_settings()

-- DuckDB's tables
-- error: UndefinedTableError
-- says: relation "duckdb_tables" does not exist
-- at: duckdb_tab
SELECT * FROM duckdb_tables

-- SQLite's tables
-- error: UndefinedTableError
-- says: relation "sqlite_master" does not exist
-- at: sqlite_mas
SELECT * FROM sqlite_master

-- a relation of the evaluator
-- error: UndefinedTableError
-- says: relation "axis0" does not exist
-- at: axis0
SELECT * FROM axis0

-- a relation of another release
-- error: UndefinedTableError
-- says: relation "r0" does not exist
-- at: r0
SELECT * FROM r0

-- the environment
-- error: UndefinedFunctionError
-- says: function getenv is not among those the proxy knows
-- at: getenv('HO
SELECT getenv('HOME')

-- a setting
-- error: UndefinedFunctionError
-- says: function current_setting is not among those the proxy knows
-- at: current_se
SELECT current_setting('memory_limit')

-- a long text
-- error: StatementTooComplexError
-- says: a text of this statement becomes too long
SELECT repeat('x', 2000000000)

-- a long series
-- error: StatementTooComplexError
-- says: generate_series makes more than 10,000 rows
-- at: generate_s
SELECT COUNT(*) FROM generate_series(1, 100000000)

-- a list as rows
-- error: UndefinedFunctionError
-- says: function unnest is not among those the proxy knows
-- at: unnest(ARR
SELECT unnest(ARRAY[1, 2])

-- a pause
-- error: UndefinedFunctionError
-- says: function pg_sleep is not among those the proxy knows
-- at: pg_sleep(1
SELECT pg_sleep(10)

-- a version
-- error: UndefinedFunctionError
-- says: function version is not among those the proxy knows
-- at: version()
SELECT version()

-- a text that ends a quotation
-- error: DataError
-- says: invalid input syntax for type integer: "5' OR 1=1 --"
-- at: age = '5''
SELECT COUNT(*) FROM survey WHERE age = '5'' OR 1=1 --'

-- a name that ends a quotation
-- error: UndefinedColumnError
-- says: column "x" FROM axis0 --" does not exist
-- at: "x"" FROM
SELECT "x"" FROM axis0 --" FROM survey

-- a lambda
-- error: UndefinedFunctionError
-- says: function list_transform is not among those the proxy knows
-- at: list_trans
SELECT list_transform([1], x -> x)

-- DuckDB's COLUMNS
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: COLUMNS('a
SELECT COLUMNS('a') FROM survey

-- a struct
-- error: UndefinedFunctionError
-- says: function struct is not among those the proxy knows
-- at: 1}
SELECT {'a': 1}

-- a cast to a DuckDB type
-- error: NotSupportedError
-- says: the type int128 is not supported in this form
-- at: age::hugei
SELECT COUNT(*) FROM survey WHERE age::hugeint > 1
