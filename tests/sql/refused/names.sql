-- an unknown column
-- error: UndefinedColumnError
-- says: column "regio" does not exist
-- at: regio = 's
SELECT COUNT(*) FROM survey WHERE regio = 'south'

-- a name that would have to be quoted
-- error: UndefinedColumnError
-- says: column "job_title" does not exist
-- at: Job_Title
SELECT COUNT(*) FROM survey WHERE Job_Title = 'clerk'

-- an unknown table
-- error: UndefinedTableError
-- says: relation "surveys" does not exist
-- at: surveys
SELECT COUNT(*) FROM surveys

-- an unknown schema
-- error: UndefinedTableError
-- says: relation "other.survey" does not exist
-- at: other.surv
SELECT COUNT(*) FROM other.survey

-- the catalog
-- error: UndefinedTableError
-- says: relation "pg_catalog.pg_class" does not exist
-- at: pg_catalog
SELECT COUNT(*) FROM pg_catalog.pg_class

-- the information schema
-- error: UndefinedTableError
-- says: relation "information_schema.tables" does not exist
-- at: informatio
SELECT COUNT(*) FROM information_schema.tables

-- an unknown relation of the proxy
-- error: UndefinedTableError
-- says: relation "privacy.secrets" does not exist
-- at: privacy.se
SELECT COUNT(*) FROM privacy.secrets

-- the table's name where an alias hides it
-- error: UndefinedTableError
-- says: missing FROM-clause entry for table "survey"
-- at: survey.age
SELECT COUNT(*) FROM survey s WHERE survey.age > 1

-- an unknown qualifier
-- error: UndefinedTableError
-- says: missing FROM-clause entry for table "x"
-- at: x.age > 1
SELECT COUNT(*) FROM survey WHERE x.age > 1

-- an ambiguous column
-- error: AmbiguousColumnError
-- says: column reference "region" is ambiguous
-- at: region = '
SELECT a.region FROM (SELECT region FROM survey GROUP BY region) a, (SELECT region FROM survey GROUP BY region) b WHERE region = 'x'

-- a table named twice
-- error: AmbiguousColumnError
-- says: table name "places" specified more than once
SELECT 1 AS x FROM places, places

-- a column that the subquery does not select
-- error: UndefinedColumnError
-- says: column "age" does not exist
-- at: age > 1
SELECT COUNT(*) FROM (SELECT region FROM survey) t WHERE age > 1

-- a column of a result that is not there
-- error: UndefinedColumnError
-- says: column "m" does not exist
-- at: m FROM (SE
SELECT m FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t

-- an alias in WHERE
-- error: UndefinedColumnError
-- says: column "a" does not exist
-- at: a > 3 GROU
SELECT age AS a, COUNT(*) FROM survey WHERE a > 3 GROUP BY age

-- an alias in HAVING
-- error: UndefinedColumnError
-- says: column "n" does not exist
-- at: n > 5
SELECT region, COUNT(*) AS n FROM survey GROUP BY region HAVING n > 5

-- more names than columns
-- error: ProgrammingError
-- says: 2 columns available but 3 columns specified
-- at: region, CO
SELECT x FROM (SELECT region, COUNT(*) FROM survey GROUP BY region) AS t(x, y, z)
