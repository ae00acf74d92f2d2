-- rows above the mean of all
SELECT region, COUNT(*) AS n FROM survey WHERE age > (SELECT AVG(age) FROM survey) GROUP BY region

-- rows of the largest groups
SELECT COUNT(*) AS n FROM survey WHERE region IN (SELECT region FROM survey GROUP BY region ORDER BY COUNT(*) DESC LIMIT 2)

-- rows of all but the largest groups
SELECT COUNT(*) AS n FROM survey WHERE region NOT IN (SELECT region FROM survey WHERE region IS NOT NULL GROUP BY region ORDER BY COUNT(*) DESC LIMIT 1)

-- a series by the largest groups, joined back
SELECT DATE_TRUNC('month', joined) AS month, s.region, COUNT(*) AS n FROM survey s JOIN (SELECT region AS region__, COUNT(*) AS mme_inner__ FROM survey GROUP BY region ORDER BY mme_inner__ DESC LIMIT 2) AS series_limit ON s.region = series_limit.region__ GROUP BY 1, 2

-- a result before the dataset
SELECT t.region, t.n, COUNT(*) AS young FROM (SELECT region, COUNT(*) AS n FROM survey WHERE region IS NOT NULL GROUP BY region) t JOIN survey s ON s.region = t.region WHERE s.age < 20 GROUP BY t.region, t.n

-- a WITH query that is read twice
WITH top AS (SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY n DESC LIMIT 2) SELECT COUNT(*) AS n, (SELECT SUM(n) FROM top) AS total FROM survey WHERE region IN (SELECT region FROM top)

-- a WITH query that is joined, under names of its own
WITH top (place, people) AS (SELECT region, COUNT(*) FROM survey GROUP BY region ORDER BY 2 DESC LIMIT 2) SELECT place, married, COUNT(*) AS n FROM survey JOIN top ON region = place WHERE people > 10 GROUP BY 1, 2

-- a result that a result chooses rows for
SELECT COUNT(*) AS n FROM survey WHERE age > (SELECT AVG(age) FROM survey WHERE region IN (SELECT region FROM survey GROUP BY region ORDER BY COUNT(*) DESC LIMIT 1))

-- two results in one condition
SELECT COUNT(*) AS n FROM survey WHERE age BETWEEN (SELECT AVG(age) - 3 FROM survey) AND (SELECT AVG(age) + 3 FROM survey WHERE married)

-- within FILTER and CASE
SELECT COUNT(*) FILTER (WHERE age > (SELECT AVG(age) FROM survey)) AS old, SUM(CASE WHEN age > (SELECT AVG(age) FROM survey) THEN 0 ELSE 1 END) AS young FROM survey

-- a group by it
SELECT old, COUNT(*) AS n FROM (SELECT age > (SELECT AVG(age) FROM survey) AS old FROM survey) t GROUP BY old

-- rows where a result exists
SELECT COUNT(*) AS n FROM survey WHERE EXISTS (SELECT region FROM survey GROUP BY region HAVING COUNT(*) > 5)

-- rows where none exists
SELECT COUNT(*) AS n FROM survey WHERE EXISTS (SELECT region FROM survey GROUP BY region HAVING COUNT(*) > 100000)

-- nothing compared with
SELECT COUNT(*) AS n FROM survey WHERE age > (SELECT AVG(age) FROM survey WHERE age > 10000)

-- in a UNION ALL of rows
SELECT COUNT(*) AS n FROM (SELECT age FROM survey WHERE married UNION ALL SELECT age FROM survey WHERE age > (SELECT AVG(age) FROM survey)) t

-- in a subquery of FROM
SELECT region, COUNT(*) AS n FROM (SELECT region, age FROM survey WHERE age > (SELECT AVG(age) FROM survey)) t GROUP BY region

-- beside a public table
SELECT p.place, COUNT(*) AS n FROM survey s JOIN places p ON s.region = p.place WHERE s.age > (SELECT AVG(age) FROM survey) GROUP BY p.place

-- two WITH queries of one text, that read others of one name
WITH a AS (SELECT age FROM survey WHERE age < 18 GROUP BY age), b AS (SELECT MAX(age) AS m FROM a) SELECT x.n AS one, y.n AS two FROM (WITH a AS (SELECT age FROM survey GROUP BY age) SELECT COUNT(*) AS n FROM survey WHERE age >= (SELECT m FROM b)) AS x CROSS JOIN (WITH a AS (SELECT age FROM survey GROUP BY age), b AS (SELECT MAX(age) AS m FROM a) SELECT COUNT(*) AS n FROM survey WHERE age >= (SELECT m FROM b)) AS y
