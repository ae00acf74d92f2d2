-- the rows of two SELECTs
SELECT COUNT(*) FROM (SELECT age FROM survey WHERE age > 20 UNION ALL SELECT age FROM survey WHERE married) x

-- the same rows twice
SELECT COUNT(*), SUM(wage) AS s FROM (SELECT * FROM survey UNION ALL SELECT * FROM survey) x

-- columns that differ
SELECT COUNT(*), COUNT(a) AS c, SUM(a) AS s FROM (SELECT age AS a FROM survey WHERE age > 20 UNION ALL SELECT children FROM survey WHERE married) x

-- a measure in one part
SELECT COUNT(a) AS c, SUM(a) AS s, AVG(a) AS m FROM (SELECT age AS a FROM survey WHERE age > 20 UNION ALL SELECT wage FROM survey UNION ALL SELECT bonus FROM survey) x

-- two measures
SELECT region, SUM(a - b) AS s FROM (SELECT region, wage AS a, age AS b FROM survey UNION ALL SELECT region, bonus, 1 FROM survey WHERE married) x GROUP BY region

-- a NULL in one part
SELECT COUNT(*), COUNT(a) AS c FROM (SELECT NULL AS a FROM survey UNION ALL SELECT age FROM survey WHERE age < 9) x

-- types that differ
SELECT SUM(a / 2) AS s FROM (SELECT age AS a FROM survey UNION ALL SELECT score FROM survey) x

-- whole numbers of two sizes
SELECT SUM(a / 2) AS s FROM (SELECT age AS a FROM survey UNION ALL SELECT age::bigint * 3 FROM survey) x

-- grouped by what is the same
SELECT region, COUNT(*), SUM(n) AS n FROM (SELECT region, age AS n FROM survey WHERE age > 20 UNION ALL SELECT region, 1 FROM survey WHERE children = 2) x GROUP BY region

-- groups of one part only
SELECT region, COUNT(*) FROM (SELECT region FROM survey WHERE region = 'north' UNION ALL SELECT region FROM survey WHERE region IN ('south', 'north')) x GROUP BY region

-- filtered outside
SELECT COUNT(*), COUNT(*) FILTER (WHERE b) AS f FROM (SELECT age AS a, age > 5 AS b FROM survey UNION ALL SELECT children + 1, married FROM survey) x WHERE a > 2

-- CASE of what differs
SELECT SUM(CASE WHEN a > 10 THEN 1 WHEN a IS NULL THEN 100 ELSE 0 END) AS s FROM (SELECT age AS a FROM survey UNION ALL SELECT children FROM survey) x

-- three parts, one in brackets
SELECT COUNT(*), SUM(a) AS s FROM (SELECT age AS a FROM survey UNION ALL (SELECT 3 FROM survey WHERE age < 3 UNION ALL SELECT children FROM survey WHERE married)) x

-- in WITH
WITH x AS (SELECT age FROM survey WHERE married UNION ALL SELECT age + 1 FROM survey WHERE age > 7) SELECT COUNT(*), SUM(age) AS s FROM x WHERE age <> 10

-- a subquery of it
SELECT COUNT(*), SUM(b) AS s FROM (SELECT a * 2 AS b FROM (SELECT age AS a FROM survey UNION ALL SELECT children FROM survey) x WHERE a > 1) y WHERE b < 30

-- of unions
SELECT SUM(a) AS s FROM (SELECT a FROM (SELECT age AS a FROM survey UNION ALL SELECT children FROM survey) x WHERE a < 20 UNION ALL SELECT a + 1 FROM (SELECT age AS a FROM survey WHERE married UNION ALL SELECT 2 FROM survey) y) z

-- with other names
SELECT k, COUNT(*) FROM (SELECT region, age FROM survey UNION ALL SELECT region, children FROM survey) AS x(k, n) WHERE n >= 2 GROUP BY k

-- joined with a public table
SELECT p.country, COUNT(*), SUM(n) AS n FROM (SELECT region, age AS n FROM survey UNION ALL SELECT region, 1 FROM survey WHERE married) x JOIN places p ON p.place = x.region GROUP BY p.country

-- a derived aggregate of what is the same
SELECT MIN(age) AS a, MAX(age) AS b FROM (SELECT age FROM survey WHERE age > 7 UNION ALL SELECT age FROM survey WHERE age < 30) x

-- ROLLUP
SELECT region, COUNT(*), SUM(n) AS n FROM (SELECT region, age AS n FROM survey UNION ALL SELECT region, children FROM survey) x GROUP BY ROLLUP (region)

-- dates and timestamps
SELECT COUNT(*) FROM (SELECT joined AS d FROM survey UNION ALL SELECT joined + INTERVAL '1 day' FROM survey) x WHERE d >= '2020-02-01'

-- an outer ORDER BY of rows
SELECT COUNT(*) FROM (SELECT age FROM survey UNION ALL SELECT children FROM survey ORDER BY 1) x

-- pairs that differ between parts
SELECT REGR_COUNT(a, c) AS n FROM (SELECT age AS a, children AS c FROM survey UNION ALL SELECT children, age FROM survey UNION ALL SELECT bonus, children FROM survey) t
