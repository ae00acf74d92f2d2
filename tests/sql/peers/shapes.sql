-- SmartNoise: sum of a bounded column
SELECT SUM(age) AS years FROM survey

-- SmartNoise: mean by three columns
SELECT married, children, region, AVG(age) AS mean FROM survey GROUP BY married, children, region

-- SmartNoise: the groups alone
SELECT region FROM survey GROUP BY region

-- SmartNoise: a function of a mean
SELECT POWER(AVG(age), 2) AS squared FROM survey

-- SmartNoise: the largest groups first
-- ordered
SELECT region, COUNT(*) * 5 AS n FROM survey GROUP BY region ORDER BY n DESC LIMIT 2

-- SmartNoise: HAVING over an expression of aggregates
SELECT region, COUNT(*) AS n FROM survey GROUP BY region HAVING SUM(age) / COUNT(*) > 5 AND COUNT(*) * 2 > 100

-- SmartNoise: sum of a sum of columns
SELECT SUM(age + wage) AS both FROM survey WHERE married

-- SmartNoise: random numbers beside an aggregate
-- refused: 42883 function random is not among those the proxy knows
SELECT RANDOM() AS r, COUNT(*) AS n FROM survey

-- SmartNoise: an aggregate of an aggregate
-- refused: 42803 aggregate function calls cannot be nested
SELECT SUM(SUM(age)) FROM survey

-- SmartNoise: a row of the table
-- refused: 0A000 the rows of a protected dataset are not shown
SELECT CASE WHEN age > 30 THEN 1 ELSE 0 END AS older FROM survey

-- FLEX: count over WITH
WITH t AS (SELECT * FROM survey) SELECT COUNT(*) AS n FROM t WHERE region = 'south'

-- FLEX: rows of WITH that is an aggregate
WITH t AS (SELECT COUNT(*) AS n FROM survey) SELECT n / 100 AS hundreds FROM t

-- FLEX: a comparison of a count
SELECT COUNT(age) = 100 AS hit FROM survey

-- FLEX: groups counted by the size of their count
WITH t AS (SELECT joined, COUNT(*) + 1 AS n FROM survey GROUP BY joined) SELECT COUNT(joined) AS days FROM t WHERE n < 10

-- FLEX: join with a public table
SELECT p.country, COUNT(*) AS n FROM survey s JOIN places p ON s.region = p.place GROUP BY p.country

-- FLEX: join with a public table on a computed key
SELECT COUNT(*) AS n FROM survey s JOIN places p ON upper(s.region) = upper(p.place) WHERE p.coast

-- FLEX: self-join by key
-- refused: 0A000 protected rows are not joined with one another
SELECT COUNT(*) FROM survey a JOIN survey b ON a.age = b.age

-- FLEX: group by a protected identifier
-- refused: 42703 column "customer_id" does not exist
SELECT customer_id, COUNT(*) FROM survey GROUP BY 1

-- ZetaSQL: mean and sum by month
SELECT date_trunc('month', joined)::date AS month, AVG(wage) AS mean, SUM(wage) AS total FROM survey GROUP BY 1

-- ZetaSQL: bounds that are tighter than the policy's
-- refused: 0A000 not a linear function of the measure wage
SELECT SUM(LEAST(GREATEST(wage, 100), 500)) FROM survey

-- ZetaSQL: bounds of a discrete column
SELECT region, SUM(LEAST(GREATEST(age, 10), 30)) AS years FROM survey GROUP BY region

-- ZetaSQL: approximate quantiles
SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY age) AS low, PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY age) AS high FROM survey

-- ZetaSQL: quantile of a measure
-- refused: 0A000 needs single values of a measure, and the cube has only its sums
SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY wage) FROM survey

-- ZetaSQL: its own clause
-- refused: 42601 syntax error at or near "WITH"
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, privacy_unit_column = id) COUNT(*) FROM survey

-- ZetaSQL: a sample of the rows
-- refused: 0A000 TABLESAMPLE is not supported
SELECT COUNT(*) FROM survey TABLESAMPLE SYSTEM (10)

-- Privacy on Beam: distinct values of a column
SELECT COUNT(DISTINCT children) AS kinds, COUNT(DISTINCT region) AS regions FROM survey

-- PipelineDP: count, sum, mean and variance of each partition
SELECT region, COUNT(*) AS n, SUM(age) AS total, AVG(age) AS mean, VAR_POP(age) AS spread FROM survey GROUP BY region

-- Tumult: groups from a public list, absent ones included
SELECT p.place, COALESCE(t.n, 0) AS n FROM places p LEFT JOIN (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t ON t.region = p.place

-- Tumult: bins with names, one for NULL
SELECT CASE WHEN children < 1 THEN 'none' WHEN children < 3 THEN 'some' WHEN children IS NULL THEN 'unknown' ELSE 'many' END AS bin, COUNT(*) AS n FROM survey GROUP BY 1

-- Tumult: several rows made of one
-- refused: 0A000 unnest takes a list that is written out
SELECT x, COUNT(*) FROM survey, unnest(ARRAY[age, children]) AS x GROUP BY x

-- Tumult: join of two protected tables
-- refused: 42P01 relation "visits" does not exist
SELECT COUNT(*) FROM survey s JOIN visits v ON v.id = s.id

-- Qrlew: nested subqueries with filters and new columns
SELECT k, SUM(y) AS total FROM (SELECT k, x * 2 AS y FROM (SELECT age / 10 AS k, age + 1 AS x FROM survey WHERE region <> 'west') a WHERE x > 3) b GROUP BY k

-- Qrlew: a share of the whole
SELECT region, COUNT(*) AS n, 1.0 * COUNT(*) / (SELECT COUNT(*) FROM survey) AS share FROM survey GROUP BY region

-- Qrlew: results joined with each other
WITH a AS (SELECT region, COUNT(*) AS n FROM survey GROUP BY region), b AS (SELECT region, SUM(wage) AS w FROM survey GROUP BY region) SELECT a.region, w / n AS mean FROM a JOIN b ON a.region = b.region

-- Qrlew: one result above another
SELECT 'young' AS who, COUNT(*) AS n FROM survey WHERE age < 20 UNION ALL SELECT 'old', COUNT(*) FROM survey WHERE age >= 20

-- PINQ: union of two filtered copies of the rows
SELECT COUNT(*) AS n FROM (SELECT age FROM survey WHERE married UNION ALL SELECT age FROM survey WHERE region = 'south') t

-- PINQ: median
SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY age) AS median FROM survey

-- PrivateSQL: a condition on rows by a subquery over the same table
SELECT COUNT(*) FROM survey WHERE region IN (SELECT region FROM survey GROUP BY region HAVING COUNT(*) > 150)

-- PrivateSQL: running totals of a histogram
-- ordered
SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS below FROM survey GROUP BY age ORDER BY age

-- OpenDP: NULL replaced before a sum
SELECT region, SUM(COALESCE(bonus, 0)) AS total FROM survey GROUP BY region
