-- the dataset with itself
-- error: NotSupportedError
-- says: protected rows are not joined with one another, or with a result
-- at: survey b O
SELECT COUNT(*) FROM survey a JOIN survey b ON a.age = b.age

-- rows in rows
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: age FROM s
SELECT COUNT(*) FROM survey WHERE age IN (SELECT age FROM survey WHERE married)

-- a natural join
-- error: NotSupportedError
-- says: this JOIN is not supported
-- at: COUNT(*) AS n FROM survey) b
SELECT a.n FROM (SELECT COUNT(*) AS n FROM survey) a NATURAL JOIN (SELECT COUNT(*) AS n FROM survey) b

-- a lateral join
-- error: NotSupportedError
-- says: FROM takes tables and subqueries, not LATERAL (SELECT p.people) AS x
-- at: p.people)
SELECT * FROM places p, LATERAL (SELECT p.people) x

-- a join without its condition
-- error: SQLSyntaxError
-- says: JOIN lacks its condition: ON or USING
-- at: COUNT(*) AS n FROM survey) b
SELECT a.n FROM (SELECT COUNT(*) AS n FROM survey) a LEFT JOIN (SELECT COUNT(*) AS n FROM survey) b

-- a public table on the right
-- error: NotSupportedError
-- says: RIGHT JOIN keeps rows of the public table for which there is no record
-- at: places p O
SELECT COUNT(*) FROM survey s RIGHT JOIN places p ON s.region = p.place

-- a public table on the left that is kept
-- error: NotSupportedError
-- says: LEFT JOIN keeps rows of the public table for which there is no record
-- at: survey s O
SELECT COUNT(*) FROM places p LEFT JOIN survey s ON s.region = p.place

-- both sides kept
-- error: NotSupportedError
-- says: FULL JOIN keeps rows of the public table for which there is no record
SELECT COUNT(*) FROM survey s FULL JOIN places p ON s.region = p.place

-- records without a public row only
-- error: NotSupportedError
-- says: JOIN
SELECT COUNT(*) FROM survey s NATURAL JOIN places p

-- an outer join by inequality
-- error: NotSupportedError
-- says: an outer JOIN of protected rows takes equalities with columns of the public table
-- at: s.age > p.
SELECT COUNT(*) FROM survey s LEFT JOIN places p ON s.age > p.people

-- an outer join with more conditions
-- error: NotSupportedError
-- says: an outer JOIN of protected rows takes equalities
-- at: p.coast
SELECT COUNT(*) FROM survey s LEFT JOIN places p ON s.region = p.place AND p.coast

-- grouped by what repeats for a key
-- error: NotSupportedError
-- says: a record may have several values of this column
SELECT p.place, COUNT(*) FROM survey s, places p GROUP BY p.place

-- a public table with too many rows for each record
-- error: StatementTooComplexError
-- says: a record meets 256 rows of d; 64 are allowed
-- at: places d
SELECT COUNT(*) FROM survey CROSS JOIN places a CROSS JOIN places b CROSS JOIN places c CROSS JOIN places d

-- the same name twice
-- error: AmbiguousColumnError
-- says: table name "p" specified more than once
SELECT COUNT(*) FROM places p JOIN survey p ON TRUE

-- two public tables before the dataset
-- error: NotSupportedError
-- says: protected rows are not joined with one another, or with a result
-- at: survey s O
SELECT COUNT(*) FROM places p JOIN places q ON p.place = q.place JOIN survey s ON s.region = p.place

-- an outer join without its condition
-- error: SQLSyntaxError
-- says: JOIN lacks its condition: ON or USING
SELECT COUNT(*) FROM survey s LEFT JOIN places p

-- a key that the public table does not have
-- error: UndefinedColumnError
-- says: column "nope" does not exist
-- at: p.nope
SELECT COUNT(*) FROM survey s JOIN places p ON s.region = p.nope

-- a join whose condition was forgotten
-- error: SQLSyntaxError
-- says: JOIN lacks its condition: ON or USING
-- at: places
SELECT COUNT(*) FROM survey JOIN places

-- a join with an empty condition
-- error: SQLSyntaxError
-- says: syntax error after "ON": the expression is incomplete
-- at: WHERE
SELECT COUNT(*) FROM survey JOIN places ON WHERE age > 3

-- a join of results whose condition was forgotten
-- error: SQLSyntaxError
-- says: JOIN lacks its condition
-- at: places
SELECT * FROM (SELECT COUNT(*) AS n FROM survey) t JOIN places

-- a column that FULL JOIN has merged, neither grouped nor aggregated
-- error: GroupingError
-- says: column "region" must appear in the GROUP BY clause
-- at: region FROM (
SELECT region FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) a FULL JOIN places AS p(region) USING (region) GROUP BY n

-- bins that overlap
-- error: NotSupportedError
-- says: a record may have several values of this column
SELECT b.lo, COUNT(*) FROM survey s JOIN (VALUES (0, 11), (10, 25)) AS b(lo, hi) ON s.age >= b.lo AND s.age < b.hi GROUP BY b.lo

-- bins that keep their own rows
-- error: NotSupportedError
-- says: LEFT JOIN keeps rows of the public table
SELECT b.lo, COUNT(s.age) FROM (VALUES (0, 10), (10, 25)) AS b(lo, hi) LEFT JOIN survey s ON s.age >= b.lo AND s.age < b.hi GROUP BY b.lo

-- a result of several rows as one value
-- error: DataError
-- says: more than one row returned by a subquery used as an expression
SELECT COUNT(*) FROM survey WHERE age > (SELECT age FROM survey GROUP BY age)

-- a result of several columns as a list
-- error: ProgrammingError
-- says: subquery must return only one column
SELECT COUNT(*) FROM survey WHERE region IN (SELECT region, COUNT(*) FROM survey GROUP BY region)

-- a result that reads the outer rows
-- error: NotSupportedError
-- says: a subquery cannot read s.region of the query around it here
SELECT COUNT(*) FROM survey s WHERE age > (SELECT AVG(t.age) FROM survey t WHERE t.region = s.region)

-- EXISTS by more than one equality
-- error: NotSupportedError
-- says: a subquery cannot read s.region of the query around it here
-- at: s.region AND
SELECT COUNT(*) FROM survey s WHERE EXISTS (SELECT 1 FROM places p WHERE p.place = s.region AND p.people > s.age)

-- a scalar of a row of the dataset
-- error: NotSupportedError
-- says: a subquery cannot read age of the query around it here
SELECT COUNT(*) FROM survey WHERE age > (SELECT MAX(people) FROM places WHERE people > age)

-- a subquery of the dataset for each row of a table
-- error: NotSupportedError
-- says: a subquery cannot read p.place of the query around it here
SELECT place, (SELECT COUNT(*) FROM survey s WHERE s.region = p.place) FROM places p

-- a subquery of a table for each group
-- error: NotSupportedError
-- says: JOIN (SELECT a, COUNT(*) AS n
SELECT region, (SELECT MAX(people) FROM places WHERE place = survey.region), COUNT(*) FROM survey GROUP BY region

-- rows of values in a subquery
-- error: NotSupportedError
-- says: rows of values are looked up in rows that are written out, not in a subquery
SELECT COUNT(*) FROM survey WHERE (region, age) IN (SELECT place, people FROM places)

-- rows of values in a subquery, over a result
-- error: NotSupportedError
-- says: rows of values are looked up in rows that are written out, not in a subquery
SELECT COUNT(*) FROM places WHERE (place, people) NOT IN (SELECT region, age FROM survey GROUP BY 1, 2)
