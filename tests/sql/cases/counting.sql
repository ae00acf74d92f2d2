-- all records
SELECT COUNT(*) FROM survey

-- a name for the count
SELECT COUNT(*) AS n FROM survey

-- a name without AS
SELECT count(*) people FROM survey

-- a column is counted where it is not NULL
SELECT COUNT(children), COUNT(married), COUNT(age) FROM survey

-- a measure is counted where it is not NULL
SELECT COUNT(bonus), COUNT(wage) FROM survey

-- the same column twice
SELECT COUNT(*), COUNT(*) AS again FROM survey

-- COUNT(1) counts records
SELECT COUNT(1), COUNT('x') FROM survey

-- COUNT(NULL) counts nothing
SELECT COUNT(NULL) FROM survey

-- COUNT(ALL x) is COUNT(x)
SELECT COUNT(ALL children) FROM survey

-- an expression is counted where it is not NULL
SELECT COUNT(children + 1), COUNT(NULLIF(region, 'south')) FROM survey

-- CASE without ELSE counts its branches
SELECT COUNT(CASE WHEN age > 20 THEN 1 END) FROM survey

-- CASE with ELSE counts all
SELECT COUNT(CASE WHEN age > 20 THEN 1 ELSE 0 END) FROM survey

-- a measure chosen by CASE is counted where it is chosen and present
SELECT COUNT(CASE WHEN region = 'south' THEN bonus END) FROM survey

-- a measure times an expression is counted where both are there
SELECT COUNT(bonus * children) FROM survey

-- COUNT_IF counts where a condition is true
-- reference: SELECT COUNT(*) FILTER (WHERE children > 1) AS n FROM survey
SELECT COUNT_IF(children > 1) AS n FROM survey

-- REGR_COUNT counts where both are not NULL
SELECT REGR_COUNT(age, children) AS a, REGR_COUNT(children, score) AS b, REGR_COUNT(NULLIF(age, 3), children + 1) AS c, REGR_COUNT(NULL, age) AS d FROM survey

-- REGR_COUNT of a measure and a column, in either order
SELECT region, REGR_COUNT(bonus, children) AS a, REGR_COUNT(children, bonus) AS b, REGR_COUNT(bonus * children, age) AS c FROM survey GROUP BY region

-- REGR_COUNT in a linear combination, with FILTER, of a text that is a number
SELECT 2 * REGR_COUNT(age, children) - COUNT(*) AS a, REGR_COUNT('5', children) FILTER (WHERE married) AS b FROM survey

-- REGR_COUNT of results
SELECT REGR_COUNT(n, NULLIF(m, 5)) AS a, REGR_COUNT(n, m) FILTER (WHERE m > 2) AS b FROM (SELECT children AS m, COUNT(*) AS n FROM survey GROUP BY children) t

-- FILTER restricts one aggregate
SELECT COUNT(*) FILTER (WHERE region = 'south') AS south, COUNT(*) AS everyone FROM survey

-- FILTER with NULL is false
SELECT COUNT(*) FILTER (WHERE married) AS n FROM survey

-- FILTER of a counted column
SELECT COUNT(children) FILTER (WHERE married IS NULL) FROM survey

-- FILTER of a counted measure
SELECT COUNT(bonus) FILTER (WHERE age < 10) FROM survey

-- multiples and constants
SELECT 2 * COUNT(*) - 10, COUNT(*) * -1, -COUNT(*) + 3 FROM survey

-- a sum of counts
SELECT COUNT(*) + COUNT(children) + COUNT(bonus) FROM survey

-- a difference of counts
SELECT COUNT(*) - COUNT(children) FROM survey

-- a count less itself is zero
SELECT COUNT(*) - COUNT(*) FROM survey

-- a multiple by zero
SELECT 0 * COUNT(*) + 7 FROM survey

-- whole numbers divide without remainder
SELECT COUNT(*) / 7, (COUNT(*) + 1) / 2 FROM survey

-- decimals divide exactly
SELECT COUNT(*) / 8.0 AS eighth, 0.5 * COUNT(*) AS half FROM survey

-- a percentage
SELECT 100.0 * COUNT(*) / 7 AS p FROM survey

-- the remainder of a count
SELECT COUNT(*) % 7 FROM survey

-- casts of counts
SELECT COUNT(*)::float8 / 7 AS f, COUNT(*)::numeric / 8 AS n, CAST(COUNT(*) AS bigint) AS b FROM survey

-- a number over nothing is zero
SELECT COUNT(*) FROM survey WHERE age = 100

-- a condition that is always false
SELECT COUNT(*) FROM survey WHERE 1 = 0

-- a condition that is always true
SELECT COUNT(*) FROM survey WHERE 1 = 1

-- FALSE and NULL
SELECT COUNT(*) FROM survey WHERE FALSE OR NULL

-- the ratio of two counts
SELECT COUNT(*) FILTER (WHERE age < 20) * 1.0 / COUNT(*) AS share FROM survey

-- the ratio of a filtered count and another
SELECT 100.0 * COUNT(CASE WHEN married THEN 1 END) / NULLIF(COUNT(married), 0) AS percent FROM survey

-- rounding the ratio
SELECT ROUND(100.0 * COUNT(*) FILTER (WHERE married) / COUNT(*), 2) AS percent FROM survey

-- functions of a count
SELECT ABS(COUNT(*) - 700), GREATEST(COUNT(*), 1000), SIGN(COUNT(*)) FROM survey

-- functions of many arguments, of one, and of NULL
SELECT GREATEST(COUNT(*)) AS a, LEAST(SUM(age)) AS b, COALESCE(COUNT(*)) AS c, GREATEST(1) AS d, GREATEST(COUNT(*), NULL) AS e, LEAST(COUNT(*), NULL, 7) AS f, GREATEST(COUNT(*), SUM(age)) AS g, CONCAT(COUNT(*)) AS h, COALESCE(NULL, COUNT(*)) AS i FROM survey

-- the square root of a count
SELECT SQRT(COUNT(*)) AS root FROM survey

-- CASE on a count
SELECT CASE WHEN COUNT(*) > 100 THEN 'many' ELSE 'few' END AS size FROM survey

-- COALESCE of a count is the count
SELECT COALESCE(COUNT(*), 0) AS n FROM survey

-- a comparison of counts
SELECT COUNT(*) > 100 AS many, COUNT(*) = 600 AS exactly FROM survey

-- a literal beside a count
SELECT 'all' AS what, 1 AS one, NULL AS nothing, COUNT(*) FROM survey

-- a count as text
SELECT COUNT(*)::text || ' records' AS words FROM survey
