-- all rows
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: * FROM sur
SELECT * FROM survey

-- rows of a column
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: region FRO
SELECT region FROM survey

-- rows with LIMIT
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: region, ag
SELECT region, age FROM survey WHERE age > 3 LIMIT 10

-- rows of an alias
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: s.* FROM s
SELECT s.* FROM survey s

-- rows of a measure
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: wage FROM
SELECT wage FROM survey

-- rows of an expression
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: age + 1 FR
SELECT age + 1 FROM survey

-- rows in a result
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: age AS n F
SELECT n FROM (SELECT age AS n FROM survey LIMIT 5) t

-- rows beside aggregates in a subquery
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: region FRO
SELECT (SELECT region FROM survey)

-- rows in a UNION
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: region FRO
SELECT region FROM survey UNION ALL SELECT 'x'

-- rows in EXISTS
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: 1 FROM sur
SELECT EXISTS (SELECT 1 FROM survey WHERE age > 100)

-- a number for each row
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: random() F
SELECT random() FROM survey

-- a window over rows
-- error: NotSupportedError
-- says: window functions run over results, not over protected rows
-- at: RANK() OVE
SELECT RANK() OVER (ORDER BY age) FROM survey

-- a count over a limited number of rows
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: * FROM sur
SELECT COUNT(*) FROM (SELECT * FROM survey LIMIT 10) t

-- a star with groups
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown, only aggregates of them
-- at: *, COUNT(*
SELECT *, COUNT(*) FROM survey GROUP BY region

-- DISTINCT of everything
-- error: NotSupportedError
-- says: SELECT DISTINCT * would list the whole domain; name the columns
-- at: * FROM sur
SELECT DISTINCT * FROM survey

-- DISTINCT of a measure
-- error: NotSupportedError
-- says: wage is a measure: it can be summed, averaged and counted, and nothing else
-- at: wage FROM
SELECT DISTINCT wage FROM survey

-- a column that is not grouped
-- error: GroupingError
-- says: column "region" must appear in the GROUP BY clause or be used in an aggregate function
-- at: region, CO
SELECT region, COUNT(*) FROM survey

-- a column beside those that are grouped
-- error: GroupingError
-- says: column "age" must appear in the GROUP BY clause or be used in an aggregate function
-- at: age, COUNT
SELECT region, age, COUNT(*) FROM survey GROUP BY region

-- an expression that is not grouped
-- error: GroupingError
-- says: column "age" must appear in the GROUP BY clause or be used in an aggregate function
-- at: age / 5, C
SELECT age / 5, COUNT(*) FROM survey GROUP BY age / 10

-- HAVING on a column that is not grouped
-- error: GroupingError
-- says: column "age" must appear in the GROUP BY clause or be used in an aggregate function
-- at: age > 3
SELECT COUNT(*) FROM survey HAVING age > 3

-- ORDER BY a column that is not grouped
-- error: GroupingError
-- says: column "age" must appear in the GROUP BY clause or be used in an aggregate function
-- at: age
SELECT COUNT(*) FROM survey ORDER BY age

-- a result's column that is not grouped
-- error: GroupingError
-- says: column "n" must appear in the GROUP BY clause or be used in an aggregate function
-- at: n FROM (SE
SELECT n FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t GROUP BY region
