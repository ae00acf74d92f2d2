-- Kaggle: the number of rows
SELECT COUNT(*) FROM survey

-- Kaggle: the first rows
-- refused: single rows; 0A000; the rows of a protected dataset are not shown
SELECT * FROM survey LIMIT 5

-- Kaggle: the distinct values
SELECT DISTINCT region FROM survey

-- Kaggle: value counts
SELECT children, COUNT(*) AS n FROM survey GROUP BY children ORDER BY n DESC, children

-- Kaggle: normalized value counts
SELECT married, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS share FROM survey GROUP BY married

-- Kaggle: describe
SELECT COUNT(age) AS count, AVG(age) AS mean, STDDEV(age) AS std, MIN(age) AS min, PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY age) AS q1, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY age) AS q2, PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY age) AS q3, MAX(age) AS max FROM survey

-- Kaggle: the median
SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY age) AS median FROM survey

-- Kaggle: missing values
SELECT SUM(CASE WHEN married IS NULL THEN 1 ELSE 0 END) AS married, SUM(CASE WHEN children IS NULL THEN 1 ELSE 0 END) AS children FROM survey

-- Kaggle: missing values by difference
SELECT COUNT(*) - COUNT(married) AS missing FROM survey

-- Kaggle: a share of missing values
SELECT ROUND(100.0 * (COUNT(*) - COUNT(bonus)) / COUNT(*), 2) AS pct FROM survey

-- Kaggle: a cross-tabulation
SELECT region, married, COUNT(*) AS n FROM survey GROUP BY region, married ORDER BY region, married

-- Kaggle: the mean by group
SELECT region, AVG(wage) AS mean FROM survey GROUP BY region ORDER BY mean DESC

-- Kaggle: the mean rounded as numeric
SELECT region, ROUND(AVG(wage)::numeric, 2) AS mean FROM survey GROUP BY region

-- Kaggle: the range of a date
SELECT MIN(joined) AS first, MAX(joined) AS last FROM survey

-- Kaggle: the range of a date in days
SELECT MAX(joined) - MIN(joined) AS days FROM survey

-- Kaggle: distinct combinations
-- refused: aggregates; 0A000; a row of values is not supported
SELECT COUNT(DISTINCT (region, married)) AS n FROM survey

-- Kaggle: distinct by a subquery
SELECT COUNT(*) AS n FROM (SELECT DISTINCT region, married FROM survey) t

-- Kaggle: correlation
-- refused: aggregates; 0A000; is not a function of counts and sums that is known
SELECT CORR(age, children) AS r FROM survey

-- Kaggle: correlation by sums
SELECT SUM(age * children) AS xy, SUM(age) AS x, SUM(children) AS y, SUM(age * age) AS xx FROM survey

-- Kaggle: slope
-- refused: aggregates; 0A000; is not a function of counts and sums that is known
SELECT REGR_SLOPE(age, children) AS slope FROM survey

-- Kaggle: variance
SELECT VARIANCE(age) AS v, VAR_POP(age) AS p FROM survey

-- Kaggle: the longest text
SELECT MAX(LENGTH("Job Title")) AS len FROM survey

-- Kaggle: outliers by a fixed bound
SELECT COUNT(*) AS n FROM survey WHERE age NOT BETWEEN 2 AND 37

-- Kaggle: a class by CASE and its mean
SELECT CASE WHEN children IS NULL THEN 'unknown' WHEN children <= 0 THEN 'none' WHEN children < 3 THEN 'some' ELSE 'many' END AS kids, COUNT(*) AS n, AVG(age) AS mean FROM survey GROUP BY 1 ORDER BY n DESC

-- Kaggle: survival by class
SELECT region, SUM(CASE WHEN married THEN 1 ELSE 0 END) * 100.0 / COUNT(*) AS rate FROM survey GROUP BY region ORDER BY rate DESC

-- Kaggle: a boolean mean
SELECT region, AVG(married::int) AS rate FROM survey GROUP BY region

-- Kaggle: a boolean aggregate
SELECT region, BOOL_OR(married) AS any, BOOL_AND(married) AS every FROM survey GROUP BY region

-- Kaggle: a pattern
SELECT COUNT(*) AS n FROM survey WHERE "Job Title" ~* '^c.*k$'

-- Kaggle: a title extracted
SELECT substring("Job Title" from '^[A-Za-z]+') AS word, COUNT(*) AS n FROM survey GROUP BY 1

-- Kaggle: a year and a month
SELECT EXTRACT(year FROM joined)::int AS year, EXTRACT(month FROM joined)::int AS month, COUNT(*) AS n FROM survey GROUP BY 1, 2 ORDER BY 1, 2

-- Kaggle: the year by date_part
SELECT DATE_PART('year', joined) AS year, COUNT(*) AS n FROM survey GROUP BY DATE_PART('year', joined)

-- Kaggle: hours of a day
-- refused: bins; 0A000; is not the same for all values in the bin
SELECT EXTRACT(hour FROM seen) AS hour, COUNT(*) AS n FROM survey GROUP BY hour ORDER BY hour

-- Kaggle: a random sample
-- refused: sampling; 0A000; TABLESAMPLE is not supported
SELECT region, COUNT(*) FROM survey TABLESAMPLE BERNOULLI (10) GROUP BY region

-- Kaggle: a log scale
SELECT ROUND(LN(age + 1)::numeric, 1) AS log_age, COUNT(*) AS n FROM survey GROUP BY 1

-- Kaggle: the mean and its spread by group
SELECT zone, ROUND(AVG(age), 1) AS mean, ROUND(STDDEV_SAMP(age), 2) AS sd FROM survey GROUP BY zone

-- Kaggle: two filters compared
SELECT AVG(wage) FILTER (WHERE zone = 'cold') AS cold, AVG(wage) FILTER (WHERE zone = 'warm') AS warm FROM survey

-- Kaggle: a product of columns
SELECT region, SUM(age * wage) AS weighted, SUM(age * wage) / NULLIF(SUM(age), 0) AS mean FROM survey GROUP BY region

-- Kaggle: the ratio of the extremes
SELECT MAX(n)::float / MIN(n) AS ratio FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t

-- Kaggle: a table of quantiles of a measure
-- refused: single rows; 0A000; the cube has only its sums
SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY wage) AS p90 FROM survey

-- Kaggle: values as decimal text
SELECT score::text AS score, COUNT(*) AS n FROM survey GROUP BY score ORDER BY 1
