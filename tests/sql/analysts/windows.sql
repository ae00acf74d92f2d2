-- a running total by day
SELECT joined, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY joined) AS total FROM survey GROUP BY joined ORDER BY joined

-- a running total of a CTE
WITH d AS (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) SELECT joined, SUM(n) OVER (ORDER BY joined ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total FROM d

-- a rolling average of seven days
WITH d AS (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) SELECT joined, AVG(n) OVER (ORDER BY joined ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS mean FROM d ORDER BY joined

-- a rolling sum by range of days
WITH d AS (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) SELECT joined, SUM(n) OVER (ORDER BY joined RANGE BETWEEN INTERVAL '6 days' PRECEDING AND CURRENT ROW) AS week FROM d

-- a centred average
WITH m AS (SELECT month, COUNT(*) AS n FROM survey GROUP BY month) SELECT month, AVG(n) OVER (ORDER BY month ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS mean FROM m

-- month over month
WITH m AS (SELECT month, COUNT(*) AS n FROM survey GROUP BY month) SELECT month, n, n - LAG(n) OVER (ORDER BY month) AS change FROM m ORDER BY month

-- month over month in percent
WITH m AS (SELECT month, COUNT(*) AS n FROM survey GROUP BY month) SELECT month, ROUND(100.0 * (n - LAG(n) OVER (ORDER BY month)) / NULLIF(LAG(n) OVER (ORDER BY month), 0), 1) AS growth FROM m ORDER BY month

-- three months ago
SELECT month, COUNT(*) AS n, LAG(COUNT(*), 3, 0) OVER (ORDER BY month) AS before FROM survey GROUP BY month

-- the next group
SELECT region, COUNT(*) AS n, LEAD(COUNT(*)) OVER (ORDER BY region) AS following FROM survey GROUP BY region

-- a rank by count
SELECT region, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS place FROM survey GROUP BY region

-- a dense rank in a part
SELECT zone, region, COUNT(*) AS n, DENSE_RANK() OVER (PARTITION BY zone ORDER BY COUNT(*) DESC) AS place FROM survey GROUP BY zone, region

-- the top two of each group
SELECT * FROM (SELECT region, "Job Title", COUNT(*) AS n, ROW_NUMBER() OVER (PARTITION BY region ORDER BY COUNT(*) DESC, "Job Title") AS r FROM survey GROUP BY region, "Job Title") t WHERE r <= 2

-- share of the part
SELECT zone, region, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER (PARTITION BY zone) AS share FROM survey GROUP BY zone, region

-- share of the total by an integer product
SELECT region, 100 * COUNT(*) / SUM(COUNT(*)) OVER () AS pct FROM survey GROUP BY region

-- a cumulative share (Pareto)
WITH c AS (SELECT "Job Title" AS job, COUNT(*) AS n FROM survey GROUP BY 1) SELECT job, n, SUM(n) OVER (ORDER BY n DESC, job) * 1.0 / SUM(n) OVER () AS cumulative FROM c

-- quartiles of groups
SELECT joined, NTILE(4) OVER (ORDER BY joined) AS quartile, COUNT(*) AS n FROM survey GROUP BY joined

-- percent rank of groups
SELECT region, PERCENT_RANK() OVER (ORDER BY COUNT(*)) AS p FROM survey GROUP BY region

-- a distance from the mean
WITH c AS (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) SELECT region, n - AVG(n) OVER () AS difference FROM c

-- a z-score of groups
WITH c AS (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) SELECT region, (n - AVG(n) OVER ()) / NULLIF(STDDEV(n) OVER (), 0) AS z FROM c

-- first and last of a part
SELECT zone, region, COUNT(*) AS n, FIRST_VALUE(region) OVER (PARTITION BY zone ORDER BY COUNT(*) DESC) AS top FROM survey GROUP BY zone, region

-- a named window
SELECT month, COUNT(*) AS n, SUM(COUNT(*)) OVER w AS total, AVG(COUNT(*)) OVER w AS mean FROM survey GROUP BY month WINDOW w AS (ORDER BY month)

-- running maximum
SELECT month, MAX(COUNT(*)) OVER (ORDER BY month) AS most FROM survey GROUP BY month

-- an index to the first month
WITH m AS (SELECT month, COUNT(*) AS n FROM survey GROUP BY month) SELECT month, 100.0 * n / FIRST_VALUE(n) OVER (ORDER BY month) AS index FROM m

-- year to date
WITH m AS (SELECT month, SUM(wage) AS w FROM survey GROUP BY month) SELECT month, SUM(w) OVER (PARTITION BY EXTRACT(year FROM month) ORDER BY month) AS ytd FROM m

-- gaps between days with records
WITH d AS (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) SELECT joined, joined - LAG(joined) OVER (ORDER BY joined) AS gap FROM d

-- the median of groups
SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY n) AS median FROM (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) t

-- several percentiles of groups
SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY n) AS q1, PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY n) AS q3 FROM (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) t

-- percentiles as an array
-- refused: language; 42804; a percentile takes a number
SELECT PERCENTILE_CONT(ARRAY[0.25, 0.5, 0.75]) WITHIN GROUP (ORDER BY age) AS q FROM survey

-- the busiest day
SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined ORDER BY n DESC, joined LIMIT 1

-- the second largest
SELECT region FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t ORDER BY n DESC, region OFFSET 1 LIMIT 1

-- a comparison with the same group elsewhere
WITH c AS (SELECT zone, children, COUNT(*) AS n FROM survey GROUP BY 1, 2) SELECT a.children, a.n AS cold, b.n AS warm FROM c a JOIN c b ON a.children = b.children WHERE a.zone = 'cold' AND b.zone = 'warm'

-- a cross join with the total
WITH t AS (SELECT COUNT(*) AS n FROM survey), g AS (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) SELECT g.region, g.n * 1.0 / t.n AS share FROM g CROSS JOIN t

-- a correlated subquery over results
WITH c AS (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) SELECT joined, (SELECT SUM(x.n) FROM c x WHERE x.joined <= c.joined) AS total FROM c

-- a cohort by month of joining
SELECT date_trunc('month', joined) AS cohort, EXTRACT(month FROM age(DATE '2020-04-01', joined)) AS months, COUNT(*) AS n FROM survey GROUP BY 1, 2

-- a cohort's size beside each row
WITH c AS (SELECT date_trunc('month', joined)::date AS cohort, married, COUNT(*) AS n FROM survey GROUP BY 1, 2) SELECT cohort, married, n, SUM(n) OVER (PARTITION BY cohort) AS size FROM c

-- a funnel
SELECT COUNT(*) AS all_people, COUNT(*) FILTER (WHERE married) AS step1, COUNT(*) FILTER (WHERE married AND children > 0) AS step2, ROUND(1.0 * COUNT(*) FILTER (WHERE married AND children > 0) / NULLIF(COUNT(*) FILTER (WHERE married), 0), 3) AS rate FROM survey

-- islands of weeks
SELECT date_trunc('week', joined)::date AS week, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY date_trunc('week', joined)::date) AS i FROM survey GROUP BY 1

-- a share of records in a part
SELECT region, AVG(CASE WHEN married THEN 1.0 ELSE 0.0 END) AS rate FROM survey GROUP BY region

-- top with ties
-- refused: language; 0A000; LIMIT takes a number of rows
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY n DESC FETCH FIRST 2 ROWS WITH TIES

-- a row for each group beside the overall mean
SELECT region, AVG(age) AS mean, AVG(age) - (SELECT AVG(age) FROM survey) AS difference FROM survey GROUP BY region
