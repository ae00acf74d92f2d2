-- by a column
SELECT region, COUNT(*) FROM survey GROUP BY region

-- the column named twice
SELECT region, region AS r, COUNT(*) FROM survey GROUP BY region

-- the column not shown
SELECT COUNT(*) AS n FROM survey GROUP BY region

-- the column after the number
SELECT COUNT(*), region FROM survey GROUP BY region

-- two columns
-- rows: 12
SELECT region, married, COUNT(*) AS n FROM survey GROUP BY region, married

-- by a qualified column
SELECT survey.region, COUNT(*) FROM survey GROUP BY survey.region

-- by an ordinal
SELECT region, COUNT(*) FROM survey GROUP BY 1

-- by two ordinals
SELECT COUNT(*), region, zone FROM survey GROUP BY 2, 3

-- by an alias
SELECT region AS r, COUNT(*) FROM survey GROUP BY r

-- by an alias of an expression
SELECT age / 10 AS decade, COUNT(*) FROM survey GROUP BY decade

-- an input column goes before an alias
SELECT upper(region) AS zone, COUNT(*) FROM survey GROUP BY region, zone

-- by an expression
SELECT age / 10 * 10 AS decade, COUNT(*) FROM survey GROUP BY age / 10 * 10

-- by an expression in brackets
SELECT (age / 10) AS d, COUNT(*) FROM survey GROUP BY (age / 10)

-- a function of a grouped expression
SELECT age / 10 * 10 + 5 AS middle, COUNT(*) FROM survey GROUP BY age / 10 * 10

-- by a condition
SELECT age > 20 AS old, COUNT(*) FROM survey GROUP BY age > 20

-- by a condition that may be NULL
SELECT children > 1 AS several, COUNT(*) FROM survey GROUP BY 1

-- by CASE
SELECT CASE WHEN age < 10 THEN 'child' WHEN age < 20 THEN 'teen' ELSE 'adult' END AS who, COUNT(*) FROM survey GROUP BY 1

-- by CASE of two columns
SELECT CASE WHEN region = 'south' AND age > 20 THEN 1 ELSE 0 END AS x, COUNT(*), SUM(wage) FROM survey GROUP BY 1

-- by two expressions of one column
SELECT age % 2 AS odd, age > 20 AS old, COUNT(*) FROM survey GROUP BY age % 2, age > 20

-- by a column and an expression of it
SELECT region, upper(region) AS u, COUNT(*) FROM survey GROUP BY region, upper(region)

-- by text
SELECT "Job Title", COUNT(*) FROM survey GROUP BY "Job Title"

-- by a boolean with NULL
SELECT married, COUNT(*), COUNT(married) FROM survey GROUP BY married

-- by a number with NULL
SELECT children, COUNT(*) FROM survey GROUP BY children

-- by a decimal
SELECT score, COUNT(*) FROM survey GROUP BY score

-- by a rounded decimal
SELECT ROUND(score) AS r, COUNT(*) FROM survey GROUP BY 1

-- by a date
SELECT joined, COUNT(*) FROM survey GROUP BY joined

-- by bins
SELECT income, COUNT(*) FROM survey GROUP BY income

-- by months
SELECT month, COUNT(*), SUM(wage) FROM survey GROUP BY month

-- by intervals of time
SELECT seen, COUNT(*) FROM survey GROUP BY seen

-- by a coarser column
SELECT zone, COUNT(*) FROM survey GROUP BY zone

-- by a coarser column and its own
SELECT zone, region, COUNT(*) FROM survey GROUP BY zone, region

-- by a condition on bins
SELECT income >= 5 AS high, COUNT(*) FROM survey GROUP BY income >= 5

-- empty groups are listed
-- rows: 360
SELECT age, children, COUNT(*) FROM survey GROUP BY age, children

-- groups that WHERE excludes are not
-- rows: 2
SELECT region, COUNT(*) FROM survey WHERE region IN ('south', 'west') GROUP BY region

-- groups that WHERE excludes by another column are not
-- rows: 1
SELECT zone, COUNT(*) FROM survey WHERE region = 'south' GROUP BY zone

-- a condition on other columns excludes no group
-- rows: 4
SELECT region, COUNT(*) FROM survey WHERE age = 7 GROUP BY region

-- a condition that ties columns
-- rows: 6
SELECT region, age, COUNT(*) FROM survey WHERE region = 'south' AND age < 5 OR region = 'west' AND age = 7 GROUP BY region, age

-- a condition that excludes everything
-- rows: 0
SELECT region, COUNT(*) FROM survey WHERE age > 100 GROUP BY region

-- a constant beside groups
SELECT 'x' AS k, region, COUNT(*) FROM survey GROUP BY region

-- a constant among the groups
SELECT 'x' AS k, region, COUNT(*) FROM survey GROUP BY 1, 2

-- DISTINCT is the declared values
SELECT DISTINCT region FROM survey

-- DISTINCT of two columns
SELECT DISTINCT region, married FROM survey

-- DISTINCT of an expression
SELECT DISTINCT age / 20 AS d FROM survey ORDER BY d

-- groups without numbers
SELECT region FROM survey GROUP BY region ORDER BY region DESC

-- DISTINCT of grouped numbers
SELECT DISTINCT zone, COUNT(*) > 5 AS some FROM survey GROUP BY zone

-- linear combinations by group
SELECT region, 2 * COUNT(*) - 10 AS n, SUM(wage) - 100 * COUNT(*) AS s FROM survey GROUP BY region

-- FILTER by group
SELECT region, COUNT(*) FILTER (WHERE married) AS m, COUNT(*) FILTER (WHERE NOT married) AS u FROM survey GROUP BY region

-- a pivot
SELECT region, SUM(CASE WHEN married THEN 1 ELSE 0 END) AS m, SUM(CASE WHEN NOT married THEN 1 ELSE 0 END) AS u FROM survey GROUP BY region

-- GROUP BY nothing
SELECT COUNT(*) FROM survey GROUP BY ()

-- ROLLUP
SELECT region, married, COUNT(*) FROM survey GROUP BY ROLLUP (region, married)

-- CUBE
SELECT zone, married, COUNT(*), SUM(wage) FROM survey GROUP BY CUBE (zone, married)

-- GROUPING SETS
SELECT zone, married, COUNT(*) FROM survey GROUP BY GROUPING SETS ((zone), (married), ())

-- GROUPING SETS of pairs
SELECT zone, region, married, COUNT(*) FROM survey GROUP BY GROUPING SETS ((zone, region), (zone, married))

-- a column and ROLLUP
SELECT zone, region, COUNT(*) FROM survey GROUP BY zone, ROLLUP (region)

-- ROLLUP of pairs
SELECT zone, region, married, COUNT(*) FROM survey GROUP BY ROLLUP ((zone, region), married)

-- GROUPING tells totals from NULLs
SELECT married, GROUPING(married) AS total, COUNT(*) FROM survey GROUP BY ROLLUP (married)

-- GROUPING of two columns
SELECT zone, married, GROUPING(zone, married) AS g, COUNT(*) FROM survey GROUP BY CUBE (zone, married)

-- HAVING on grouping sets
SELECT zone, married, COUNT(*) FROM survey GROUP BY CUBE (zone, married) HAVING COUNT(*) > 150

-- GROUPING without sets is 0
SELECT region, GROUPING(region) AS g, COUNT(*) FROM survey GROUP BY region

-- months by name
-- ordered
SELECT to_char(month, 'FMMonth YYYY') AS m, COUNT(*) AS n FROM survey GROUP BY month ORDER BY month

-- buckets of equal width, with what is outside
-- ordered
SELECT width_bucket(children, 0, 4, 2) AS b, COUNT(*) AS n FROM survey GROUP BY 1 ORDER BY 1

-- buckets between thresholds
SELECT width_bucket(score, ARRAY[0, 2.5]) AS b, COUNT(*) AS n, AVG(age) AS m FROM survey GROUP BY 1

-- whole months between days
SELECT EXTRACT(year FROM age(joined, DATE '2019-11-30')) * 12 + EXTRACT(month FROM age(joined, DATE '2019-11-30')) AS months, COUNT(*) AS n FROM survey GROUP BY 1

-- strides of a week from a fixed day
SELECT date_bin('7 days', joined::timestamp, TIMESTAMP '2019-12-28') AS t, COUNT(*) AS n FROM survey GROUP BY 1

-- the day of a timestamp that is declared in bins
SELECT to_char(seen, 'DD Mon') AS d, COUNT(*) AS n FROM survey WHERE seen < '2020-01-02' GROUP BY seen

-- numbers as text in a condition on records
SELECT COUNT(*) AS n FROM survey WHERE to_char(age, 'FM00') LIKE '3%'

-- words of a text
SELECT initcap(region) AS r, regexp_replace("Job Title", '[^a-z]+', '', 'g') AS j, COUNT(*) AS n FROM survey GROUP BY 1, 2

-- whether a text of a number is as PostgreSQL's
SELECT (age / 4.0)::float8 || ' years' AS t, COUNT(*) AS n FROM survey GROUP BY 1

-- grouping sets that are there several times
SELECT region, COUNT(*) FROM survey GROUP BY ALL ROLLUP (region), ROLLUP (region)

-- DISTINCT of a single grouping set
SELECT region, COUNT(*) FROM survey GROUP BY DISTINCT region
