-- the dataset after a public table
SELECT p.country, COUNT(*) FROM places p JOIN survey s ON s.region = p.place GROUP BY p.country

-- all records, the public table first
SELECT p.country, COUNT(*), SUM(s.wage) AS w FROM places p RIGHT JOIN survey s ON p.place = s.region GROUP BY p.country

-- the columns of both, in order
SELECT COUNT(*) FROM (SELECT * FROM places p JOIN survey s ON p.place = s.region) AS t(a, b, c, d, e, f) WHERE b = 'Arland' AND f > 20

-- a key that repeats
SELECT COUNT(*), SUM(n) AS n FROM survey s JOIN (VALUES ('north', 1), ('north', 2), ('south', 10), ('north', 1)) AS v(r, n) ON v.r = s.region

-- a key that repeats, all records kept
SELECT COUNT(*), COUNT(n) AS c, SUM(n) AS n FROM survey s LEFT JOIN (VALUES ('north', 1), ('north', 2), ('south', 10), ('north', NULL)) AS v(r, n) ON v.r = s.region

-- a key that repeats, grouped by the record
SELECT s.region, s.married, COUNT(*), SUM(n * age) AS n FROM survey s LEFT JOIN (VALUES ('north', 1), ('north', 2), ('south', 10)) AS v(r, n) ON v.r = s.region GROUP BY s.region, s.married

-- a key that repeats, grouped by what does not
SELECT c, COUNT(*), SUM(n) AS n FROM survey s JOIN (VALUES ('north', 1, 'x'), ('north', 2, 'x'), ('south', 10, 'y'), ('east', 3, NULL), ('east', 4, NULL)) AS v(r, n, c) ON v.r = s.region GROUP BY c

-- a country's places
SELECT COUNT(*), SUM(p.people) AS n FROM survey s JOIN places q ON s.region = q.place JOIN places p ON p.country = q.country

-- NULL keys of the public table
SELECT COUNT(*), SUM(n) AS n FROM survey s JOIN (VALUES ('north', 1), (NULL, 2), (NULL, 10)) AS v(r, n) ON v.r = s.region

-- NULL keys of the records
SELECT v.c, COUNT(*), SUM(n) AS n FROM survey s LEFT JOIN (VALUES (1, 5), (1, 6), (2, 2), (NULL, 7)) AS v(c, n) ON v.c = s.children GROUP BY v.c

-- a key of two columns
SELECT COUNT(*), SUM(n) AS n FROM survey s JOIN (VALUES ('north', 1, 5), ('north', 1, 6), ('north', 2, 7), ('east', NULL, 9)) AS v(r, c, n) ON v.r = s.region AND v.c = s.children

-- USING, the public table first
SELECT region, COUNT(*) FROM (SELECT place AS region, people FROM places) p JOIN survey USING (region) GROUP BY region

-- USING, all records kept
SELECT region, COUNT(*), COUNT(people) AS c FROM (SELECT place AS region, people FROM places) p RIGHT JOIN survey USING (region) GROUP BY region

-- a cross join
SELECT COUNT(*), SUM(p.people) AS n FROM survey CROSS JOIN places p

-- a comma
SELECT region, COUNT(*), SUM(age * (CASE WHEN coast THEN 1 END)) AS n FROM survey, places GROUP BY region

-- a comma, the public table first, its key in WHERE
SELECT p.country, COUNT(*) FROM places p, survey s WHERE s.region = p.place AND p.people > 0 GROUP BY p.country

-- commas
SELECT p.country, COUNT(*) FROM survey s, places p, (VALUES ('Arland', 2), ('Borland', 3)) AS v(c, n) WHERE v.c = p.country AND s.region = p.place AND n > 1 GROUP BY p.country

-- by inequality
SELECT COUNT(*), SUM(n) AS n FROM survey s JOIN (VALUES (10, 1), (20, 2), (NULL, 3)) AS v(a, n) ON s.age > v.a

-- a range
SELECT name, COUNT(*) FROM survey s JOIN (VALUES (0, 10, 'young'), (10, 30, 'middle')) AS v(a, b, name) ON s.age >= v.a AND s.age < v.b AND name = 'young' GROUP BY name HAVING COUNT(*) > 0

-- further conditions of ON
SELECT COUNT(*), SUM(p.people) AS n FROM survey s JOIN places p ON s.region = p.place AND p.coast AND s.age > 5

-- ON TRUE
SELECT COUNT(*) FROM survey s JOIN places p ON TRUE WHERE p.coast IS NOT TRUE

-- an empty public table
SELECT COUNT(*) FROM survey s JOIN (SELECT * FROM places WHERE people < 0) p ON s.region = p.place

-- an empty public table, all records kept
SELECT COUNT(*), COUNT(people) AS n FROM survey s LEFT JOIN (SELECT * FROM places WHERE people < 0) p ON s.region = p.place

-- an empty public table, crossed
SELECT COUNT(*) FROM survey s CROSS JOIN (SELECT * FROM places WHERE people < 0) p

-- an average
SELECT AVG(people) AS m, AVG(wage) AS w FROM survey s JOIN (VALUES ('north', 1), ('north', 2), ('south', 10)) AS v(r, people) ON v.r = s.region

-- under a subquery
SELECT COUNT(*), SUM(m) AS m FROM (SELECT n + age AS m, region FROM survey s JOIN (VALUES ('north', 1), ('north', 2), ('south', 10)) AS v(r, n) ON v.r = s.region WHERE n < 5) t WHERE m > 10

-- NULL keys are no rows to meet
SELECT n, COUNT(*) FROM survey s JOIN (VALUES ('north', 1), (NULL, 2), (NULL, 10)) AS v(r, n) ON v.r = s.region GROUP BY n

-- rows of several SELECTs with rows of a key that repeats
SELECT COUNT(*), SUM(x.n * v.n) AS a, SUM(x.n) AS b FROM (SELECT region, age AS n FROM survey WHERE married UNION ALL SELECT region, children FROM survey) x JOIN (VALUES ('north', 1), ('north', 20), ('south', 300)) AS v(r, n) ON v.r = x.region WHERE x.n > 1

-- found by what differs
SELECT COUNT(*), SUM(v.n) AS a, SUM(c) AS b FROM (SELECT age % 3 AS k FROM survey WHERE married UNION ALL SELECT children FROM survey) x LEFT JOIN (VALUES (0, 1, 5), (1, 20, 7), (1, 300, 7)) AS v(k, n, c) ON v.k = x.k

-- joins of joins
SELECT COUNT(*), SUM(v.n * w.n) AS a FROM survey s JOIN (VALUES ('north', 1), ('north', 20), ('south', 300)) AS v(r, n) ON v.r = s.region LEFT JOIN (VALUES (1, 4), (1, 5), (20, 6)) AS w(k, n) ON w.k = v.n

-- VALUES as bins
-- ordered
SELECT b.label, COUNT(*) AS n, SUM(wage) AS w, AVG(age) AS m FROM survey s JOIN (VALUES (0, 10, 'a'), (10, 25, 'b')) AS b(lo, hi, label) ON s.age >= b.lo AND s.age < b.hi GROUP BY b.label ORDER BY b.label

-- VALUES as bins, first in FROM
SELECT b.lo, COUNT(*) AS n FROM (VALUES (0, 10), (10, 25)) AS b(lo, hi) JOIN survey s ON s.age BETWEEN b.lo AND b.hi - 1 GROUP BY b.lo

-- VALUES as bins after a comma
SELECT lo, hi, COUNT(*) AS n FROM survey, (VALUES (0, 10), (10, 25)) AS b(lo, hi) WHERE age >= lo AND age < hi AND married GROUP BY lo, hi

-- bins with a WHERE, a FILTER and HAVING
SELECT b.lo, COUNT(*) AS n, COUNT(*) FILTER (WHERE b.hi > 10 AND married) AS f FROM survey JOIN (VALUES (0, 10), (10, 25)) AS b(lo, hi) ON age >= b.lo AND age < b.hi WHERE children > 0 GROUP BY b.lo HAVING COUNT(*) > 1

-- bins of a column with NULLs
SELECT b.lo, COUNT(*) AS n FROM survey JOIN (VALUES (-2, 0), (0, NULL), (3, 9)) AS b(lo, hi) ON children >= b.lo AND children < b.hi GROUP BY b.lo

-- bins in a subquery
SELECT lo, COUNT(*) AS n, SUM(age) AS a FROM (SELECT b.lo, s.age FROM survey s JOIN (VALUES (0, 10), (10, 25)) AS b(lo, hi) ON s.age >= b.lo AND s.age < b.hi) t GROUP BY lo

-- distinct bins
SELECT DISTINCT b.lo FROM survey s JOIN (VALUES (0, 10), (10, 25)) AS b(lo, hi) ON s.age >= b.lo AND s.age < b.hi

-- parts that no record shares
SELECT part, COUNT(*) AS n, SUM(age) AS a, SUM(w) AS w FROM (SELECT 'a' AS part, age, wage AS w FROM survey WHERE age < 10 UNION ALL SELECT 'b', age, bonus FROM survey WHERE age > 20) x GROUP BY part

-- a series as bins
SELECT g.n * 10 AS lo, COUNT(*) AS n FROM survey JOIN generate_series(0, 4) AS g(n) ON age BETWEEN g.n * 10 AND g.n * 10 + 9 GROUP BY g.n

-- a series of days with a result
-- ordered
SELECT d::date AS day, COALESCE(c.n, 0) AS n FROM generate_series(DATE '2019-12-25', DATE '2020-01-05', INTERVAL '1 day') AS d LEFT JOIN (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) c ON c.joined = d ORDER BY 1

-- a series backwards, with a step
-- ordered
SELECT * FROM generate_series(10, 1, -3)

-- a series of months from the last of one
-- ordered
SELECT g::date AS d FROM generate_series(TIMESTAMP '2020-01-31', TIMESTAMP '2020-06-30', INTERVAL '1 month') AS g

-- a series without rows, and one with NULL
SELECT a, b FROM generate_series(2, 1) AS a, generate_series(1, NULL::int) AS b

-- a list as a table
SELECT u.region, c.n FROM unnest(ARRAY['south', 'north', 'nowhere']) AS u(region) LEFT JOIN (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) c USING (region)

-- EXISTS of a public table
SELECT COUNT(*) AS n FROM survey s WHERE EXISTS (SELECT 1 FROM places p WHERE p.place = s.region AND p.people > 1000000)

-- NOT EXISTS, with NULLs on both sides
SELECT COUNT(*) AS n FROM survey s WHERE NOT EXISTS (SELECT 1 FROM (VALUES (1), (NULL), (2)) AS v(k) WHERE s.children = v.k)

-- a WITH query of constants, joined with the dataset
WITH pv AS (SELECT 'north' AS region, 1 AS pp) SELECT COUNT(*), SUM(pp) FROM survey JOIN pv USING (region)

-- a WITH query of constants that has the name of a public table
WITH places AS (SELECT 'north' AS region) SELECT COUNT(*) FROM survey JOIN places USING (region)

-- IN a WITH query of constants
WITH places AS (SELECT 'north' AS region) SELECT COUNT(*) FROM survey WHERE region IN (SELECT region FROM places)

-- EXISTS in a WITH query of constants
WITH v AS (VALUES ('north'), ('east')) SELECT COUNT(*) FROM survey WHERE EXISTS (SELECT 1 FROM v WHERE column1 = survey.region)

-- a WITH query of a public table, read by another
WITH w AS (SELECT * FROM places), x AS (SELECT place AS region, COUNT(*) AS n FROM w GROUP BY 1) SELECT COUNT(*), SUM(n) FROM survey JOIN x USING (region)

-- a scalar of a WITH query of constants
WITH x AS (SELECT 3 AS a) SELECT COUNT(*) FROM survey WHERE age < (SELECT a FROM x)

-- a WITH query of a series, outer joined
WITH x AS (SELECT * FROM generate_series(1, 20) AS g(g)) SELECT COUNT(*) FROM survey LEFT JOIN x ON age = g WHERE g IS NULL
