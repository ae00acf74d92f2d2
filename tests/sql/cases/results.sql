-- ORDER BY a number
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY n

-- ORDER BY a number descending
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY n DESC

-- ORDER BY an aggregate
-- ordered
SELECT region FROM survey GROUP BY region ORDER BY COUNT(*) DESC

-- ORDER BY another aggregate
-- ordered
SELECT region, COUNT(*) FROM survey GROUP BY region ORDER BY SUM(wage)

-- ORDER BY an ordinal
-- ordered
SELECT region, COUNT(*) FROM survey GROUP BY region ORDER BY 2 DESC, 1

-- ORDER BY a group that is not shown
-- ordered
SELECT COUNT(*) FROM survey GROUP BY region ORDER BY region

-- ORDER BY an expression
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY -COUNT(*), region

-- ORDER BY puts NULL last
-- ordered
SELECT married, COUNT(*) FROM survey GROUP BY married ORDER BY married

-- ORDER BY descending puts NULL first
-- ordered
SELECT married, COUNT(*) FROM survey GROUP BY married ORDER BY married DESC

-- ORDER BY NULLS FIRST
-- ordered
SELECT children, COUNT(*) FROM survey GROUP BY children ORDER BY children NULLS FIRST

-- ORDER BY text in code point order
-- ordered
SELECT "Job Title", COUNT(*) FROM survey GROUP BY "Job Title" ORDER BY "Job Title"

-- LIMIT
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY n DESC LIMIT 2

-- OFFSET
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY n DESC LIMIT 2 OFFSET 1

-- LIMIT ALL
SELECT region, COUNT(*) AS n FROM survey GROUP BY region LIMIT ALL

-- FETCH FIRST
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY n FETCH FIRST 2 ROWS ONLY

-- HAVING
SELECT region, COUNT(*) FROM survey GROUP BY region HAVING COUNT(*) > 150

-- HAVING on what is not shown
SELECT region FROM survey GROUP BY region HAVING SUM(wage) > 150000 AND COUNT(*) > 0

-- HAVING on a group
SELECT region, COUNT(*) FROM survey GROUP BY region HAVING region <> 'south'

-- HAVING without GROUP BY
SELECT COUNT(*) FROM survey HAVING COUNT(*) > 100

-- HAVING that holds of nothing
-- rows: 0
SELECT COUNT(*) FROM survey HAVING COUNT(*) > 100000

-- HAVING on an expression
SELECT region, COUNT(*) AS n FROM survey GROUP BY region HAVING COUNT(*) * 2 BETWEEN 290 AND 306

-- shares of the whole
SELECT region, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM survey GROUP BY region

-- a running total
SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS total FROM survey GROUP BY age

-- ranks
SELECT region, RANK() OVER (ORDER BY COUNT(*) DESC) AS place FROM survey GROUP BY region

-- row numbers within groups
SELECT zone, region, ROW_NUMBER() OVER (PARTITION BY zone ORDER BY COUNT(*)) AS place FROM survey GROUP BY zone, region

-- dense ranks and quartiles
SELECT age, DENSE_RANK() OVER (ORDER BY age) AS d, NTILE(4) OVER (ORDER BY age) AS q FROM survey GROUP BY age

-- the row before
SELECT month, COUNT(*) - LAG(COUNT(*)) OVER (ORDER BY month) AS change FROM survey GROUP BY month

-- the row after, with a default
SELECT month, LEAD(COUNT(*), 1, 0) OVER (ORDER BY month) AS next FROM survey GROUP BY month

-- a moving average
SELECT month, AVG(COUNT(*)) OVER (ORDER BY month ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m FROM survey GROUP BY month

-- the first of each group
SELECT zone, region, FIRST_VALUE(COUNT(*)) OVER (PARTITION BY zone ORDER BY region) AS first FROM survey GROUP BY zone, region

-- a named window
SELECT region, SUM(COUNT(*)) OVER w AS s, RANK() OVER w AS r FROM survey GROUP BY region WINDOW w AS (ORDER BY region)

-- a window with FILTER
SELECT region, zone, SUM(COUNT(*)) FILTER (WHERE zone = 'cold') OVER () AS cold FROM survey GROUP BY region, zone

-- QUALIFY
-- reference: SELECT * FROM (SELECT region, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM survey GROUP BY region) t WHERE r <= 2
SELECT region, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM survey GROUP BY region QUALIFY r <= 2

-- a derived table
SELECT * FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) AS t

-- a derived table, filtered
SELECT region, n FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t WHERE n > 150

-- a derived table with other names
SELECT a, b FROM (SELECT region, COUNT(*) FROM survey GROUP BY region) AS t(a, b) WHERE a LIKE '%o%'

-- an aggregate of results
SELECT MAX(n), MIN(n), COUNT(*), AVG(n) FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t

-- the sum of results
SELECT SUM(n) AS s FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t

-- results grouped again
SELECT zone, SUM(n), MAX(s) FROM (SELECT zone, region, COUNT(*) AS n, SUM(wage) AS s FROM survey GROUP BY zone, region) t GROUP BY zone

-- results grouped and filtered
SELECT n / 10 AS tens, COUNT(*) AS regions FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t GROUP BY 1 HAVING COUNT(*) >= 1

-- results in grouping sets
SELECT zone, married, SUM(n) FROM (SELECT zone, married, COUNT(*) AS n FROM survey GROUP BY zone, married) t GROUP BY ROLLUP (zone, married)

-- the median of results
-- reference: SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n) AS m FROM (SELECT age, COUNT(*) AS n FROM survey GROUP BY age) t
SELECT MEDIAN(n) AS m FROM (SELECT age, COUNT(*) AS n FROM survey GROUP BY age) t

-- the spread of results
SELECT STDDEV(n) AS a, VAR_POP(n) AS b FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t

-- distinct results
SELECT DISTINCT zone FROM (SELECT zone, region, COUNT(*) AS n FROM survey GROUP BY zone, region) t ORDER BY zone DESC

-- a derived table within a derived table
SELECT m + 1 AS k FROM (SELECT MAX(n) AS m FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t) u

-- an arithmetic of results
SELECT region, n * 2 AS twice, n / 7 AS seventh, s / n AS mean FROM (SELECT region, COUNT(*) AS n, SUM(wage) AS s FROM survey GROUP BY region) t

-- WITH
WITH t AS (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) SELECT * FROM t WHERE n > 10

-- WITH, used twice
WITH t AS (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) SELECT a.region, a.n - b.n AS d FROM t a JOIN t b ON a.region > b.region

-- WITH of two
WITH a AS (SELECT region, COUNT(*) AS n FROM survey GROUP BY region), b AS (SELECT MAX(n) AS m FROM a) SELECT region, n, m FROM a, b WHERE n = m

-- WITH with names
WITH t(x, y) AS (SELECT region, COUNT(*) FROM survey GROUP BY region) SELECT x, y FROM t

-- a scalar subquery
SELECT region, COUNT(*) * 1.0 / (SELECT COUNT(*) FROM survey) AS share FROM survey GROUP BY region

-- a scalar subquery alone
SELECT (SELECT COUNT(*) FROM survey WHERE age < 10) AS young, (SELECT COUNT(*) FROM survey WHERE age >= 10) AS others

-- a result filtered by a scalar subquery
SELECT region FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t WHERE n > (SELECT COUNT(*) / 4 FROM survey)

-- HAVING with a scalar subquery
SELECT region, COUNT(*) FROM survey GROUP BY region HAVING COUNT(*) > (SELECT COUNT(*) / 4 FROM survey)

-- IN a result
SELECT region, n FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t WHERE region IN (SELECT region FROM survey GROUP BY region HAVING COUNT(*) > 150)

-- EXISTS in results
SELECT a.region FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) a WHERE EXISTS (SELECT 1 FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) b WHERE b.n > a.n)

-- a join of results
SELECT a.region, a.n, b.s FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) a JOIN (SELECT region, SUM(wage) AS s FROM survey GROUP BY region) b ON a.region = b.region

-- a join USING
SELECT region, n, s FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) a JOIN (SELECT region, SUM(wage) AS s FROM survey GROUP BY region) b USING (region)

-- a left join
SELECT a.region, b.n FROM (SELECT region FROM survey GROUP BY region) a LEFT JOIN (SELECT region, COUNT(*) AS n FROM survey WHERE region < 'o' GROUP BY region) b ON a.region = b.region

-- a full join
SELECT region, a.n, b.n AS m FROM (SELECT region, COUNT(*) AS n FROM survey WHERE region < 'o' GROUP BY region) a FULL JOIN (SELECT region, COUNT(*) AS n FROM survey WHERE region > 'f' GROUP BY region) b USING (region)

-- a cross join
SELECT a.n - b.n AS d FROM (SELECT COUNT(*) AS n FROM survey WHERE married) a CROSS JOIN (SELECT COUNT(*) AS n FROM survey WHERE NOT married) b

-- a join of tables by WHERE
SELECT a.n, b.n AS m FROM (SELECT zone, COUNT(*) AS n FROM survey WHERE married GROUP BY zone) a, (SELECT zone, COUNT(*) AS n FROM survey WHERE NOT married GROUP BY zone) b WHERE a.zone = b.zone

-- a join with a public table
SELECT p.country, n FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t JOIN places p ON t.region = p.place

-- results by the groups of a public table
SELECT p.country, SUM(n) FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t LEFT JOIN places p ON t.region = p.place GROUP BY p.country

-- a public table alone
SELECT place, people FROM places WHERE coast ORDER BY people DESC

-- an aggregate of a public table
SELECT country, SUM(people), COUNT(*) FROM places GROUP BY country

-- UNION ALL
SELECT 'young' AS who, COUNT(*) AS n FROM survey WHERE age < 20 UNION ALL SELECT 'old', COUNT(*) FROM survey WHERE age >= 20

-- UNION
SELECT region FROM survey GROUP BY region UNION SELECT zone FROM survey GROUP BY zone

-- UNION ALL of three, ordered
-- ordered
SELECT 1 AS k, COUNT(*) AS n FROM survey WHERE age < 10 UNION ALL SELECT 2, COUNT(*) FROM survey WHERE age < 20 UNION ALL SELECT 3, COUNT(*) FROM survey ORDER BY n DESC LIMIT 2

-- UNION of different types
SELECT COUNT(*) AS n FROM survey UNION ALL SELECT SUM(wage) FROM survey

-- EXCEPT
SELECT region FROM survey GROUP BY region EXCEPT SELECT 'south'

-- INTERSECT
SELECT region FROM survey GROUP BY region INTERSECT SELECT place FROM places

-- an aggregate over a UNION
SELECT SUM(n) FROM (SELECT COUNT(*) AS n FROM survey WHERE age < 10 UNION ALL SELECT COUNT(*) FROM survey WHERE age >= 10) t

-- VALUES
SELECT x, n FROM (VALUES (1, 'south'), (2, 'west')) AS v(x, r) JOIN (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t ON t.region = v.r

-- no table
SELECT 1 AS one, 'a' || 'b' AS ab, 7 / 2 AS three

-- a bracketed query
(SELECT region, COUNT(*) AS n FROM survey GROUP BY region) ORDER BY n LIMIT 1

-- names of casts
SELECT 1::bigint, '2'::float8, '2020-01-01'::date, true::text, COUNT(*)::numeric, 'x'::varchar FROM survey

-- names of what has no name
SELECT 1 + 1, -COUNT(*), 'x', NULL, COUNT(*) > 1, CASE WHEN COUNT(*) > 1 THEN 2 END, (SELECT 5), (SELECT 6 AS six), NOT TRUE FROM survey

-- names of functions
SELECT coalesce(1, 2), nullif(1, 2), greatest(1, 2), extract(year FROM DATE '2020-01-01'), lower('A'), substring('abc', 2), date_trunc('month', DATE '2020-02-02')::date, round(1.5), position('a' IN 'ba'), strpos('ab', 'b'), trim(' a '), trim(leading from ' a'), ltrim('a'), length('a'), power(2, 2) FROM survey GROUP BY ()

-- the first row of each
-- ordered
SELECT DISTINCT ON (zone) zone, region, COUNT(*) AS n FROM survey GROUP BY zone, region ORDER BY zone DESC, COUNT(*) DESC, region

-- the first row of each, by number
-- ordered
SELECT DISTINCT ON (1) children, age, n FROM (SELECT children, age, COUNT(*) AS n FROM survey GROUP BY children, age) t ORDER BY 1, n DESC, age LIMIT 4

-- texts in a row
SELECT zone, string_agg(region, ', ' ORDER BY region DESC) AS r, string_agg(DISTINCT zone, '-') AS z, string_agg(region, '' ORDER BY n) FILTER (WHERE n > 100000) AS none FROM (SELECT zone, region, COUNT(*) AS n FROM survey GROUP BY zone, region) t GROUP BY zone

-- a window as long as an interval
SELECT joined, SUM(n) OVER (ORDER BY joined RANGE BETWEEN INTERVAL '6 days' PRECEDING AND INTERVAL '1 day' FOLLOWING) AS w, COUNT(*) OVER (ORDER BY joined DESC RANGE INTERVAL '1 month' PRECEDING) AS c FROM (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) t

-- results as text
SELECT region, to_char(COUNT(*), 'FM9,990') AS n, to_char(SUM(wage), '999,990.00') AS w, to_char(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 'FM990.00"%"') AS p FROM survey GROUP BY region

-- an order of one's own
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY array_position(ARRAY['west', 'east', 'north'], region), region

-- a frame as long as an interval, in small letters
select joined, sum(n) over (order by joined range between interval '2 days' preceding and current row) as s from (select joined, count(*) as n from survey group by joined) t

-- a frame as long as an interval that is a plain text
SELECT joined, SUM(n) OVER (ORDER BY joined RANGE BETWEEN '2 days' PRECEDING AND '1 day' FOLLOWING) AS s FROM (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) t

-- a frame of rows, in small letters
select joined, sum(n) over (order by joined rows between 1 preceding and unbounded following) as s from (select joined, count(*) as n from survey group by joined) t

-- names of columns: casts upon casts, and functions with a syntax of their own
SELECT '1'::text::int, ('a'::text)::varchar, COUNT(*)::numeric::text, CEIL(1.5), FLOOR(2.5), INITCAP('a'), 1 + 1 FROM survey

-- names of columns: a column below casts
SELECT (age::text)::int, COUNT(*) FROM survey GROUP BY age

-- a row of totals
SELECT age, COUNT(*) FROM survey GROUP BY age UNION ALL SELECT NULL, COUNT(*) FROM survey

-- a row of totals first, with NULLs on both sides
SELECT NULL AS age, region, COUNT(*) FROM survey GROUP BY region UNION ALL SELECT age, NULL, COUNT(*) FROM survey GROUP BY age

-- a row that has no number
SELECT region, COUNT(*), SUM(wage) FROM survey GROUP BY region UNION ALL SELECT 'total', NULL, NULL

-- a row of totals after two queries, each in brackets
(SELECT joined, COUNT(*) FROM survey GROUP BY joined) UNION ALL (SELECT NULL, COUNT(*) FROM survey LIMIT 1) UNION ALL (SELECT '2020-01-01', 7)

-- literals of each type
SELECT 1 AS a, 2.50 AS b, TRUE AS c, DATE '2020-01-01' AS d, TIMESTAMP '2020-01-01 12:00' AS e, 2.5::float8 AS f, 'x'::text AS g, INTERVAL '1 day' AS h UNION ALL SELECT '2', '1.125', 'no', '2020-02-29', '2020-02-29 01:02', '1e1', 'y', '2 days 3 hours' UNION SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL

-- literals before each type
SELECT NULL AS a, '1.5' AS b, ('2020-01-01') AS d INTERSECT SELECT NULL::int, 1.50, DATE '2020-01-01'

-- EXCEPT of literals
SELECT a FROM (SELECT 1 AS a UNION SELECT NULL) t EXCEPT SELECT '1'

-- UNION of literals alone
SELECT NULL AS a UNION ALL SELECT NULL UNION ALL SELECT 'a'

-- constants of every type, as parameters are written
SELECT COUNT(*) / 7::smallint AS a, COUNT(*) / 7::numeric AS b, COUNT(*) * 0.5::float8 AS c, ROUND(COUNT(*) / 7.0, 2::smallint) AS d FROM survey

-- a number with a point and no decimals, and casts of constants
SELECT 7. / 2 AS a, -(3::smallint) AS b, NULL::interval AS c, 7::smallint / 2 AS d, COUNT(*) * 7::bigint AS e FROM survey

-- LIMIT takes a numeric that is whole
SELECT region, COUNT(*) FROM survey GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 2.

-- casts of the constants that a function wants written out
SELECT LPAD(region, 7::smallint, '*') AS a, REPEAT(region, 2::smallint) AS b, WIDTH_BUCKET(age, ARRAY[(-1)::smallint, 3::smallint]) AS c, ROUND(2.345, (2)::smallint) AS d, COUNT(*) FROM survey GROUP BY 1, 2, 3
