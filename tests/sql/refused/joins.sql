-- the dataset with itself
-- error: NotSupportedError
-- says: protected rows are not joined with one another, or with a result
-- at: survey b O
SELECT COUNT(*) FROM survey a JOIN survey b ON a.age = b.age

-- the dataset after a public table
-- error: NotSupportedError
-- says: protected rows are not joined with one another, or with a result
-- at: survey s O
SELECT COUNT(*) FROM places p JOIN survey s ON s.region = p.place

-- a public table without a key
-- error: NotSupportedError
-- says: protected rows are joined with a public table by equality of its key: ON a = b, or USING
-- at: places
SELECT COUNT(*) FROM survey, places

-- a public table by inequality
-- error: NotSupportedError
-- says: protected rows are joined with a public table by equality of its key: ON a = b, or USING
-- at: s.age > p.
SELECT COUNT(*) FROM survey s JOIN places p ON s.age > p.people

-- a public table by what is not its key
-- error: NotSupportedError
-- says: several rows of p have the same key
-- at: places p O
SELECT COUNT(*) FROM survey s JOIN places p ON s.region = p.country

-- a public table on the right
-- error: NotSupportedError
-- says: RIGHT JOIN: protected rows are joined with a public table by equality of its key: ON a = b, or USING
-- at: places p O
SELECT COUNT(*) FROM survey s RIGHT JOIN places p ON s.region = p.place

-- the dataset with a result
-- error: NotSupportedError
-- says: protected rows are not joined with a result
-- at: region, CO
SELECT COUNT(*) FROM survey s JOIN (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t ON s.region = t.region

-- rows compared with a result
-- error: NotSupportedError
-- says: rows are not selected by a result of the protected dataset
-- at: AVG(age) F
SELECT COUNT(*) FROM survey WHERE age > (SELECT AVG(age) FROM survey)

-- rows in a result
-- error: NotSupportedError
-- says: rows are not selected by a result of the protected dataset
-- at: region IN
SELECT COUNT(*) FROM survey WHERE region IN (SELECT region FROM survey GROUP BY region HAVING COUNT(*) > 5)

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
-- error: ProgrammingError
-- says: JOIN takes ON or USING
-- at: COUNT(*) AS n FROM survey) b
SELECT a.n FROM (SELECT COUNT(*) AS n FROM survey) a LEFT JOIN (SELECT COUNT(*) AS n FROM survey) b
