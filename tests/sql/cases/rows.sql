-- a subquery that filters
SELECT COUNT(*) FROM (SELECT * FROM survey WHERE region = 'south') t

-- a subquery that projects
SELECT COUNT(*), SUM(w) FROM (SELECT wage AS w, age FROM survey WHERE age > 10) t WHERE age < 30

-- a subquery that computes
SELECT decade, COUNT(*) FROM (SELECT age / 10 AS decade FROM survey) t GROUP BY decade

-- a subquery that computes a measure
SELECT region, SUM(twice) FROM (SELECT region, 2 * wage + age AS twice FROM survey) t GROUP BY region

-- a subquery within a subquery
SELECT COUNT(*) FROM (SELECT a FROM (SELECT age + 1 AS a, region FROM survey WHERE region <> 'west') t WHERE a > 5) u WHERE a < 20

-- a subquery with other names
SELECT r, COUNT(*) FROM (SELECT region, age FROM survey) AS t(r, a) WHERE a > 3 GROUP BY r

-- precedence survives
SELECT SUM(a * 2), COUNT(*) FILTER (WHERE a - 1 > 3) AS n FROM (SELECT age + 1 AS a FROM survey) t

-- WITH over rows
WITH young AS (SELECT * FROM survey WHERE age < 20) SELECT region, COUNT(*) FROM young GROUP BY region

-- WITH over rows, used twice
WITH young AS (SELECT * FROM survey WHERE age < 20) SELECT (SELECT COUNT(*) FROM young) AS a, (SELECT COUNT(*) FROM young WHERE married) AS b

-- WITH upon WITH
WITH a AS (SELECT age, region FROM survey WHERE age > 5), b AS (SELECT age * 2 AS x, region FROM a) SELECT region, SUM(x) FROM b GROUP BY region

-- WITH under a dataset's name
WITH survey AS (SELECT * FROM public.survey WHERE age > 30) SELECT COUNT(*) FROM survey

-- an alias
SELECT s.region, COUNT(*) FROM survey s WHERE s.age > 3 GROUP BY s.region

-- an alias with AS
SELECT s.region, COUNT(s.children) FROM survey AS s GROUP BY s.region

-- an alias with columns
SELECT x, COUNT(*) FROM survey AS s(x) GROUP BY x

-- a schema
SELECT COUNT(*) FROM public.survey

-- a join with a public table by its key
SELECT p.country, COUNT(*) FROM survey s JOIN places p ON s.region = p.place GROUP BY p.country

-- a left join with a public table by its key
SELECT p.country, COUNT(*), SUM(wage) FROM survey s LEFT JOIN places p ON s.region = p.place GROUP BY p.country

-- a join with a public table, filtered
SELECT COUNT(*) FROM survey s JOIN places p ON p.place = s.region WHERE p.people > 1000000

-- a join USING a public table
SELECT region, COUNT(*) FROM survey JOIN (SELECT place AS region, coast FROM places) p USING (region) WHERE coast GROUP BY region

-- sums of a public column
SELECT SUM(p.people * 0.001) AS k FROM survey s JOIN places p ON s.region = p.place

-- rows chosen by a public table
SELECT COUNT(*) FROM survey WHERE region IN (SELECT place FROM places WHERE coast)

-- rows not chosen by a public table
SELECT COUNT(*) FROM survey WHERE region NOT IN (SELECT place FROM places WHERE country = 'Arland')

-- rows compared with a public number
SELECT COUNT(*) FROM survey WHERE age > (SELECT COUNT(*) FROM places)

-- names in upper case
SELECT REGION, Count(*) FROM Survey GROUP BY Region

-- a name that needs quotes
SELECT "Job Title" AS "The Job", COUNT(*) AS "n u m" FROM survey GROUP BY "Job Title"

-- an alias in upper case
SELECT "region" AS "REGION", COUNT(*) AS N FROM survey GROUP BY "region"

-- an alias with quotes in it
SELECT COUNT(*) AS "the ""number""" FROM survey

-- an alias that is not ASCII
SELECT COUNT(*) AS anzahl_männer FROM survey

-- an alias that is a keyword
SELECT COUNT(*) AS "select" FROM survey

-- a name of DuckDB's
SELECT COUNT(*) AS rowid, region AS r0 FROM survey GROUP BY region

-- a public table after a comma
SELECT p.country, COUNT(*) FROM survey s, places p WHERE s.region = p.place AND s.age > 3 GROUP BY p.country

-- a public table by an expression
SELECT p.country, COUNT(*) FROM survey s JOIN places p ON lower(s.region) = p.place GROUP BY p.country
