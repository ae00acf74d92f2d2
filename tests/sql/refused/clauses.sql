-- GROUP BY an ordinal that is not there
-- error: GroupingError
-- says: GROUP BY position 3 is not in select list
-- at: 3
SELECT COUNT(*) FROM survey GROUP BY 3

-- ORDER BY an ordinal that is not there
-- error: ProgrammingError
-- says: ORDER BY position 3 is not in select list
-- at: 3
SELECT COUNT(*) FROM survey ORDER BY 3

-- ORDER BY what DISTINCT does not show
-- error: ProgrammingError
-- says: for SELECT DISTINCT, ORDER BY expressions must appear in select list
SELECT DISTINCT zone FROM (SELECT zone, region, COUNT(*) AS n FROM survey GROUP BY zone, region) t ORDER BY n

-- ORDER BY an expression after UNION
-- error: NotSupportedError
-- says: ORDER BY after UNION takes a column of the result, by name or number
-- at: a + 1
SELECT 1 AS a UNION ALL SELECT 2 ORDER BY a + 1

-- a negative LIMIT
-- error: TypeMismatchError
-- says: LIMIT takes a whole number that is not negative
-- at: 1
SELECT COUNT(*) FROM survey LIMIT -1

-- a LIMIT that is text
-- error: TypeMismatchError
-- says: LIMIT takes a whole number that is not negative
-- at: 'x'
SELECT COUNT(*) FROM survey LIMIT 'x'

-- a LIMIT that is computed
-- error: TypeMismatchError
-- says: LIMIT takes a whole number that is not negative
-- at: 1 + 1
SELECT COUNT(*) FROM survey LIMIT 1 + 1

-- GROUP BY ALL
-- error: NotSupportedError
-- says: GROUP BY ALL is not supported
SELECT COUNT(*) FROM survey GROUP BY ALL

-- DISTINCT ON of protected rows
-- error: NotSupportedError
-- says: DISTINCT ON chooses among results, not among protected rows
SELECT DISTINCT ON (region) region, age FROM survey

-- DISTINCT ON in another order
-- error: ProgrammingError
-- says: SELECT DISTINCT ON expressions must match initial ORDER BY expressions
SELECT DISTINCT ON (region) region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY n

-- a sample
-- error: NotSupportedError
-- says: TABLESAMPLE is not supported
-- at: survey TAB
SELECT COUNT(*) FROM survey TABLESAMPLE BERNOULLI (10)

-- a lock
-- error: NotSupportedError
-- says: FOR UPDATE is not supported
-- at: COUNT(*) F
SELECT COUNT(*) FROM survey FOR UPDATE

-- INTO
-- error: NotSupportedError
-- says: INTO is not supported
-- at: COUNT(*) I
SELECT COUNT(*) INTO x FROM survey

-- recursion
-- error: NotSupportedError
-- says: WITH RECURSIVE is not supported
-- at: r AS (SELE
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT * FROM r

-- a UNION of different widths
-- error: SQLSyntaxError
-- says: each UNION query must have the same number of columns
-- at: region, CO
SELECT region, COUNT(*) FROM survey GROUP BY region UNION ALL SELECT COUNT(*) FROM survey

-- a UNION of different types
-- error: TypeMismatchError
-- says: UNION types text and bigint cannot be matched
SELECT region FROM survey GROUP BY region UNION ALL SELECT COUNT(*) FROM survey

-- a subquery of two columns
-- error: ProgrammingError
-- says: subquery must return only one column
-- at: 1, 2)
SELECT (SELECT 1, 2)

-- a window that is not there
-- error: ProgrammingError
-- says: window "w" does not exist
-- at: SUM(COUNT(
SELECT SUM(COUNT(*)) OVER w FROM survey

-- a window frame that excludes
-- error: NotSupportedError
-- says: EXCLUDE is not supported in a window
-- at: SUM(COUNT(
SELECT SUM(COUNT(*)) OVER (ORDER BY age ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) FROM survey GROUP BY age

-- VALUES of different lengths
-- error: SQLSyntaxError
-- says: VALUES lists must all be the same length
SELECT * FROM (VALUES (1, 2), (3)) AS v(a, b)

-- too many groups
-- error: StatementTooComplexError
-- says: GROUP BY makes 482,400 groups; 100,000 are allowed
SELECT joined, age, children, score, region, COUNT(*) FROM survey GROUP BY joined, age, children, score, region

-- rows whose coefficients are too many together: each would take a third of a second
-- error: StatementTooComplexError
-- says: its condition ties too many columns together for 60 groups
SELECT "Job Title", income, CASE WHEN married THEN 'a' WHEN age > 30 THEN 'b' ELSE 'c' END AS k, COUNT(region) AS n FROM survey WHERE score <= 0 OR children <> age / 6 OR age = 28 OR (EXTRACT(month FROM joined) >= 3 AND income < 50) GROUP BY 1, 2, 3

-- too many columns tied by OR
-- error: StatementTooComplexError
-- says: a condition ties age, income, region, Job Title, children, score, joined, month, seen together: 347,328,000 cells, and 16,777,216 are allowed
-- at: joined = m
SELECT COUNT(*) FROM survey WHERE joined = month OR age = children OR seen IS NULL OR income > 0 OR region = "Job Title" OR score > 1

-- a text to order by
-- at: 'x'
-- error: SQLSyntaxError
-- says: non-integer constant in ORDER BY
SELECT region, COUNT(*) FROM survey GROUP BY region ORDER BY 'x'

-- nothing to order by
-- error: SQLSyntaxError
-- says: non-integer constant in ORDER BY
SELECT region, COUNT(*) FROM survey GROUP BY region ORDER BY NULL DESC

-- a truth in brackets to order by
-- error: SQLSyntaxError
-- says: non-integer constant in ORDER BY
SELECT region, COUNT(*) FROM survey GROUP BY region ORDER BY (true)

-- a text to group by
-- at: 'x'
-- error: SQLSyntaxError
-- says: non-integer constant in GROUP BY
SELECT COUNT(*) FROM survey GROUP BY 'x'

-- a change inside of WITH, that nothing reads
-- error: NotSupportedError
-- says: DELETE is not supported
WITH d AS (DELETE FROM survey WHERE married) SELECT COUNT(*) FROM survey

-- a change inside of WITH, returning rows
-- error: NotSupportedError
-- says: UPDATE is not supported
WITH d AS (UPDATE survey SET age = 1 RETURNING age) SELECT 1 FROM survey

-- an insertion inside of WITH
-- error: NotSupportedError
-- says: INSERT is not supported
SELECT COUNT(*) FROM (WITH d AS (INSERT INTO places SELECT 1) SELECT age FROM survey) t

-- DISTINCT of grouping sets
-- error: NotSupportedError
-- says: list each set once: GROUP BY GROUPING SETS
SELECT region, COUNT(*) FROM survey GROUP BY DISTINCT ROLLUP (region), ROLLUP (region)

-- DISTINCT of grouping sets of results
-- error: NotSupportedError
-- says: GROUP BY DISTINCT is not supported
SELECT region, SUM(n) FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t GROUP BY DISTINCT CUBE (region), region

-- all columns as groups
-- error: NotSupportedError
-- says: GROUP BY ALL is not supported
SELECT region, COUNT(*) FROM survey GROUP BY ALL

-- totals in MySQL's words
-- error: NotSupportedError
-- says: write GROUP BY ROLLUP
SELECT region, COUNT(*) FROM survey GROUP BY region WITH ROLLUP

-- a cube in SQL Server's words
-- error: NotSupportedError
-- says: WITH CUBE is not supported
SELECT region, COUNT(*) FROM survey GROUP BY region WITH CUBE

-- grouping sets in Hive's words
-- error: NotSupportedError
-- says: GROUPING SETS without a comma before it is not supported
SELECT region, COUNT(*) FROM survey GROUP BY region GROUPING SETS ((region), ())

-- a limit of each group
-- error: NotSupportedError
-- says: EXPRESSIONS is not supported in LIMIT
SELECT region, COUNT(*) AS n FROM survey GROUP BY region LIMIT 2 BY region

-- an order that fills gaps
-- error: NotSupportedError
-- says: WITH FILL is not supported in ORDERED
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY n WITH FILL

-- UNION BY NAME
-- error: NotSupportedError
-- says: list the columns of both sides in the same order
SELECT 1 AS a, 2 AS b UNION ALL BY NAME SELECT 3 AS b, 4 AS a

-- UNION CORRESPONDING
-- error: NotSupportedError
-- says: UNION of columns by their names is not supported
SELECT 1 AS a, 2 AS b UNION CORRESPONDING SELECT 3 AS b, 4 AS a

-- the order in which a WITH is searched
-- error: NotSupportedError
-- says: SEARCH is not supported in WITH
WITH a(n) AS (SELECT 1) SEARCH DEPTH FIRST BY n SET s SELECT n FROM a

-- a lock of a query in brackets
-- error: NotSupportedError
-- says: FOR UPDATE is not supported
(SELECT place FROM places) FOR UPDATE

-- columns by a pattern
-- error: NotSupportedError
-- says: ILIKE is not supported in STAR
SELECT * ILIKE 'n%' FROM places

-- columns with other names
-- error: NotSupportedError
-- says: RENAME is not supported in STAR
SELECT * RENAME (place AS town) FROM places

-- all columns of a table but one
-- error: NotSupportedError
-- says: * EXCEPT is not supported
SELECT p.* EXCEPT (place) FROM places p

-- rows of all columns but one
-- error: NotSupportedError
-- says: * EXCEPT is not supported
SELECT COUNT(* EXCEPT (place)) FROM places

-- a window that is another and more
-- error: NotSupportedError
-- says: a window that adds to another is not supported
SELECT place, SUM(people) OVER (w ORDER BY people) FROM places WINDOW w AS (ORDER BY place)

-- a window with a name that is another and more
-- error: NotSupportedError
-- says: a window that adds to another is not supported
SELECT place, SUM(people) OVER x FROM places WINDOW w AS (ORDER BY place), x AS (w ROWS 1 PRECEDING)

-- a copy of a window that has a frame
-- error: NotSupportedError
-- says: a window that adds to another is not supported
SELECT place, SUM(people) OVER (w) FROM places WINDOW w AS (ORDER BY place ROWS 1 PRECEDING)

-- DISTINCT in a window
-- error: NotSupportedError
-- says: DISTINCT is not implemented for window functions
SELECT region, COUNT(DISTINCT COUNT(*)) OVER () FROM survey GROUP BY region

-- an aggregate with an order, in a window
-- error: NotSupportedError
-- says: aggregate ORDER BY is not implemented for window functions
SELECT STRING_AGG(place, ',' ORDER BY people) OVER () FROM places
