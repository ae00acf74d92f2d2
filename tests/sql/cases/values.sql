-- the number of different values
SELECT COUNT(DISTINCT region), COUNT(DISTINCT children) FROM survey

-- the number of different values of an expression
SELECT COUNT(DISTINCT age / 10) AS n FROM survey WHERE age < 25

-- the number of different values by group
SELECT region, COUNT(DISTINCT children) AS n, COUNT(*) AS m FROM survey GROUP BY region

-- the number of different values with FILTER
SELECT COUNT(DISTINCT age) FILTER (WHERE region = 'south' AND age > 30) AS n FROM survey

-- the least and the largest
SELECT MIN(age), MAX(age), MIN(score), MAX(joined), MIN(region) FROM survey

-- the least and the largest by group
SELECT region, MIN(children), MAX(age) FROM survey WHERE age < 30 GROUP BY region

-- the least of an expression
SELECT MIN(age * 2 - children) AS m FROM survey

-- the largest of nothing
SELECT MAX(age) FROM survey WHERE age > 100

-- the median
-- reference: SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY age) AS m FROM survey
SELECT MEDIAN(age) AS m FROM survey

-- the median by group
-- reference: SELECT region, percentile_cont(0.5) WITHIN GROUP (ORDER BY age) AS m FROM survey GROUP BY region
SELECT region, MEDIAN(age) AS m FROM survey GROUP BY region

-- percentiles
SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY age) AS a, percentile_disc(0.9) WITHIN GROUP (ORDER BY age) AS b, percentile_disc(0) WITHIN GROUP (ORDER BY children) AS c FROM survey

-- percentiles by group
SELECT zone, percentile_cont(0.1) WITHIN GROUP (ORDER BY score::float8) AS a, percentile_disc(0.5) WITHIN GROUP (ORDER BY region) AS b FROM survey GROUP BY zone

-- the mode
SELECT mode() WITHIN GROUP (ORDER BY children) AS m FROM survey

-- variances
SELECT VARIANCE(age) AS a, VAR_POP(age) AS b, STDDEV(age) AS c, STDDEV_POP(children) AS d FROM survey

-- variances by group
SELECT region, STDDEV_SAMP(age) AS s FROM survey GROUP BY region

-- the variance of one record is NULL
SELECT VAR_SAMP(age) AS v FROM survey WHERE age > 100

-- a function of the least and the largest
SELECT MAX(age) - MIN(age) AS range FROM survey

-- groups by their largest
SELECT region, MAX(children) AS m FROM survey GROUP BY region HAVING MAX(children) >= 5 ORDER BY m, region
