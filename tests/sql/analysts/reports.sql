-- dbt: a staging query and a mart
WITH base AS (SELECT region, married, wage FROM survey), agg AS (SELECT region, COUNT(*) AS people, SUM(wage) AS total FROM base GROUP BY region) SELECT region, people, total / NULLIF(people, 0) AS mean FROM agg ORDER BY region

-- dbt: renamed columns, then totals
WITH renamed AS (SELECT region AS area, age AS years FROM survey), final AS (SELECT area, AVG(years) AS mean_years FROM renamed GROUP BY area) SELECT * FROM final

-- dbt: a pivot by CASE
SELECT region, SUM(CASE WHEN married = TRUE THEN 1 ELSE 0 END) AS married, SUM(CASE WHEN married = FALSE THEN 1 ELSE 0 END) AS single, SUM(CASE WHEN married IS NULL THEN 1 ELSE 0 END) AS unknown FROM survey GROUP BY region

-- dbt: a pivot by FILTER
SELECT children, COUNT(*) FILTER (WHERE zone = 'cold') AS cold, COUNT(*) FILTER (WHERE zone = 'warm') AS warm FROM survey GROUP BY children ORDER BY children

-- dbt: a union of sources
WITH u AS (SELECT 'n' AS side, age FROM survey WHERE region = 'north' UNION ALL SELECT 's' AS side, age FROM survey WHERE region = 'south') SELECT side, COUNT(*) AS n FROM u GROUP BY side

-- dbt: a union of totals
SELECT region AS label, COUNT(*) AS n FROM survey GROUP BY region UNION ALL SELECT 'Total', COUNT(*) FROM survey

-- dbt: a surrogate label
SELECT CONCAT(region, '-', zone) AS key, COUNT(*) AS n FROM survey GROUP BY region, zone

-- dbt: a test for accepted values
SELECT region AS value_field, COUNT(*) AS n_records FROM survey WHERE region NOT IN ('north', 'south') GROUP BY region

-- dbt: a date spine
WITH spine AS (SELECT d::date AS day FROM generate_series(DATE '2020-01-01', DATE '2020-01-10', INTERVAL '1 day') AS d), daily AS (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) SELECT spine.day, COALESCE(daily.n, 0) AS n FROM spine LEFT JOIN daily ON daily.joined = spine.day ORDER BY spine.day

-- dbt: a number spine
SELECT g AS children, COALESCE(c.n, 0) AS n FROM generate_series(-2, 6) AS g LEFT JOIN (SELECT children, COUNT(*) AS n FROM survey GROUP BY children) c ON c.children = g ORDER BY g

-- dbt: a list of bins as VALUES
SELECT b.label, COUNT(*) AS n FROM survey s JOIN (VALUES (0, 10, 'young'), (10, 20, 'middle'), (20, 40, 'old')) AS b(lo, hi, label) ON s.age >= b.lo AND s.age < b.hi GROUP BY b.label

-- dbt: bins with BETWEEN
SELECT b.label, COUNT(*) AS n, AVG(age) AS mean FROM survey JOIN (VALUES ('a', 0, 9), ('b', 10, 39)) b(label, lo, hi) ON age BETWEEN b.lo AND b.hi GROUP BY b.label ORDER BY b.label

-- report: the grand total by ROLLUP
SELECT COALESCE(region, 'Total') AS region, COUNT(*) AS n FROM survey GROUP BY ROLLUP (region)

-- report: subtotals by ROLLUP
SELECT zone, region, COUNT(*) AS n FROM survey GROUP BY ROLLUP (zone, region) ORDER BY zone NULLS LAST, region NULLS LAST

-- report: all combinations by CUBE
SELECT zone, married, COUNT(*) AS n, GROUPING(zone) AS gz FROM survey GROUP BY CUBE (zone, married)

-- report: grouping sets
SELECT region, children, COUNT(*) AS n FROM survey GROUP BY GROUPING SETS ((region), (children), ())

-- report: percent of total by a subquery
SELECT region, COUNT(*) * 100.0 / (SELECT COUNT(*) FROM survey) AS pct FROM survey GROUP BY region

-- report: percent of total, rounded
SELECT region, ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 2) AS pct FROM survey GROUP BY region ORDER BY pct DESC

-- report: a percentage as text
SELECT zone, ROUND(100.0 * COUNT(*) FILTER (WHERE married) / COUNT(*), 1) || '%' AS share FROM survey GROUP BY zone

-- report: a percentage by to_char
SELECT region, to_char(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 'FM990.0') || ' %' AS share FROM survey GROUP BY region

-- report: thousands separators
SELECT region, to_char(SUM(wage), 'FM999,999,990.00') AS total FROM survey GROUP BY region

-- report: thousands of a count
SELECT to_char(COUNT(*), '999,999') AS n FROM survey

-- report: months by name
SELECT to_char(month, 'Month') AS name, COUNT(*) AS n FROM survey GROUP BY to_char(month, 'Month'), EXTRACT(month FROM month) ORDER BY EXTRACT(month FROM month)

-- report: quarters
SELECT to_char(month, 'YYYY-"Q"Q') AS quarter, COUNT(*) AS n FROM survey GROUP BY 1 ORDER BY 1

-- report: weekdays by name
SELECT to_char(joined, 'Day') AS weekday, COUNT(*) AS n FROM survey GROUP BY 1

-- report: weekdays, short, in order
SELECT to_char(joined, 'Dy') AS dy, EXTRACT(isodow FROM joined) AS d, COUNT(*) AS n FROM survey GROUP BY 1, 2 ORDER BY 2

-- report: weeks of ISO
SELECT to_char(joined, 'IYYY-IW') AS week, COUNT(*) AS n FROM survey GROUP BY 1 ORDER BY 1

-- report: a day as people write it
SELECT to_char(joined, 'DD.MM.YYYY') AS day, COUNT(*) AS n FROM survey GROUP BY joined ORDER BY joined

-- report: a day in American order
SELECT to_char(joined, 'MM/DD/YY') AS day, COUNT(*) AS n FROM survey GROUP BY 1

-- report: half years
SELECT EXTRACT(year FROM joined) AS y, CASE WHEN EXTRACT(month FROM joined) <= 6 THEN 'H1' ELSE 'H2' END AS half, COUNT(*) AS n FROM survey GROUP BY 1, 2

-- report: only large groups
SELECT region, COUNT(*) AS n FROM survey GROUP BY region HAVING COUNT(*) > 100 ORDER BY n DESC

-- report: groups above the mean of groups
WITH g AS (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) SELECT region, n FROM g WHERE n > (SELECT AVG(n) FROM g)

-- report: two aggregates joined
SELECT a.region, a.n, b.n AS married FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) a LEFT JOIN (SELECT region, COUNT(*) AS n FROM survey WHERE married GROUP BY region) b USING (region)

-- report: the largest group of each
SELECT DISTINCT ON (zone) zone, region, n FROM (SELECT zone, region, COUNT(*) AS n FROM survey GROUP BY zone, region) t ORDER BY zone, n DESC

-- report: joined with a table of names
SELECT p.country, COUNT(*) AS n FROM survey s LEFT JOIN places p ON p.place = s.region GROUP BY p.country

-- report: per head of population
SELECT s.region, COUNT(*) * 100000.0 / MAX(p.people) AS per_100k FROM survey s JOIN places p ON p.place = s.region GROUP BY s.region

-- report: a list of members
SELECT zone, string_agg(region, ', ' ORDER BY region) AS regions FROM (SELECT zone, region, COUNT(*) AS n FROM survey GROUP BY zone, region) t WHERE n > 0 GROUP BY zone

-- report: an array of members
-- refused: language; 42883; the aggregate array_agg is not
SELECT zone, array_agg(region ORDER BY region) AS regions FROM (SELECT zone, region, COUNT(*) AS n FROM survey GROUP BY zone, region) t WHERE n > 0 GROUP BY zone

-- report: a comparison of two periods
SELECT region, COUNT(*) FILTER (WHERE joined < '2020-02-01') AS before, COUNT(*) FILTER (WHERE joined >= '2020-02-01') AS after, COUNT(*) FILTER (WHERE joined >= '2020-02-01') - COUNT(*) FILTER (WHERE joined < '2020-02-01') AS change FROM survey GROUP BY region

-- report: a key performance table
SELECT 'people' AS metric, COUNT(*)::numeric AS value FROM survey UNION ALL SELECT 'mean age', AVG(age) FROM survey UNION ALL SELECT 'regions', COUNT(DISTINCT region) FROM survey
