-- Superset: months
SELECT DATE_TRUNC('month', joined) AS __timestamp, COUNT(*) AS count FROM public.survey WHERE joined >= '2020-01-01' AND joined < '2020-03-01' GROUP BY DATE_TRUNC('month', joined) LIMIT 10000

-- Superset: weeks by region, TO_DATE
SELECT DATE_TRUNC('week', joined) AS __timestamp, region AS region, COUNT(*) AS count FROM public.survey WHERE joined >= TO_DATE('2020-01-01', 'YYYY-MM-DD') AND joined < TO_DATE('2020-03-01', 'YYYY-MM-DD') GROUP BY DATE_TRUNC('week', joined), region LIMIT 50000

-- Superset: a table of counts
SELECT region AS region, COUNT(*) AS count FROM public.survey GROUP BY region ORDER BY count DESC LIMIT 10000

-- Superset: a virtual table
SELECT region AS region, sum(wage) AS "SUM(wage)", count(*) AS "COUNT(*)" FROM (SELECT * FROM survey) AS virtual_table GROUP BY region ORDER BY "SUM(wage)" DESC LIMIT 1000

-- Superset: an average, filtered by IN
SELECT "Job Title" AS "Job Title", AVG(wage) AS "AVG(wage)" FROM public.survey WHERE "Job Title" IN ('clerk', 'Ärztin') GROUP BY "Job Title" ORDER BY "AVG(wage)" DESC NULLS LAST LIMIT 100

-- Superset: a big number
SELECT COUNT(*) AS "COUNT(*)" FROM public.survey WHERE ((age >= 18 AND age < 30)) LIMIT 50000

-- Superset: bands
SELECT CASE WHEN age < 18 THEN 'minor' WHEN age < 30 THEN 'young' ELSE NULL END AS age_band, COUNT(*) AS count FROM public.survey GROUP BY CASE WHEN age < 18 THEN 'minor' WHEN age < 30 THEN 'young' ELSE NULL END ORDER BY count DESC LIMIT 1000

-- Superset: COUNT_DISTINCT
SELECT region AS region__, COUNT(DISTINCT age) AS "COUNT_DISTINCT(age)" FROM public.survey GROUP BY region ORDER BY "COUNT_DISTINCT(age)" DESC LIMIT 100

-- Superset: the range of a filter
SELECT MIN(joined), MAX(joined) FROM public.survey

-- Superset: the row count of a chart
SELECT COUNT(*) AS rowcount FROM (SELECT region AS region, count(*) AS n FROM public.survey GROUP BY region LIMIT 1000) AS rowcount_qry

-- Superset: a running total
SELECT DATE_TRUNC('day', joined) AS __timestamp, SUM(COUNT(*)) OVER (ORDER BY DATE_TRUNC('day', joined)) AS running FROM public.survey GROUP BY DATE_TRUNC('day', joined)

-- Metabase: a count by column
SELECT "public"."survey"."region" AS "region", COUNT(*) AS "count" FROM "public"."survey" GROUP BY "public"."survey"."region" ORDER BY "public"."survey"."region" ASC

-- Metabase: a count
SELECT COUNT(*) AS "count" FROM "public"."survey" LIMIT 1048575

-- Metabase: a nested question
SELECT "source"."region" AS "region", SUM("source"."wage") AS "sum" FROM (SELECT "public"."survey"."region" AS "region", "public"."survey"."wage" AS "wage" FROM "public"."survey" WHERE "public"."survey"."age" > 18) AS "source" GROUP BY "source"."region" ORDER BY "sum" DESC, "source"."region" ASC LIMIT 1048575

-- Metabase: weeks from Sunday
SELECT (DATE_TRUNC('week', ("public"."survey"."joined" + INTERVAL '1 day')) + INTERVAL '-1 day') AS "joined", COUNT(*) AS "count" FROM "public"."survey" GROUP BY (DATE_TRUNC('week', ("public"."survey"."joined" + INTERVAL '1 day')) + INTERVAL '-1 day') ORDER BY (DATE_TRUNC('week', ("public"."survey"."joined" + INTERVAL '1 day')) + INTERVAL '-1 day') ASC

-- Metabase: months as dates
SELECT CAST(DATE_TRUNC('month', CAST("public"."survey"."joined" AS TIMESTAMP)) AS DATE) AS "joined", COUNT(*) AS "count" FROM "public"."survey" GROUP BY CAST(DATE_TRUNC('month', CAST("public"."survey"."joined" AS TIMESTAMP)) AS DATE) ORDER BY 1 ASC

-- Metabase: bins of width 10
SELECT FLOOR((("public"."survey"."age" - 0.0) / 10.0)) * 10.0 + 0.0 AS "age", COUNT(*) AS "count" FROM "public"."survey" GROUP BY FLOOR((("public"."survey"."age" - 0.0) / 10.0)) * 10.0 + 0.0 ORDER BY 1

-- Metabase: bins of width 12.5
SELECT ((FLOOR((("public"."survey"."age" - 0.0) / 12.5)) * 12.5) + 0.0) AS "age", COUNT(*) AS "count" FROM "public"."survey" GROUP BY ((FLOOR((("public"."survey"."age" - 0.0) / 12.5)) * 12.5) + 0.0)

-- Metabase: count-where
SELECT SUM(CASE WHEN "public"."survey"."married" = TRUE THEN 1 ELSE 0.0 END) AS "count-where" FROM "public"."survey"

-- Metabase: share
SELECT CAST(SUM(CASE WHEN "public"."survey"."age" > 20 THEN 1 ELSE 0.0 END) AS DOUBLE PRECISION) / NULLIF(CAST(COUNT(*) AS DOUBLE PRECISION), 0.0) AS "share" FROM "public"."survey"

-- Metabase: contains
SELECT COUNT(*) AS "count" FROM "public"."survey" WHERE (LOWER("public"."survey"."region") LIKE '%nor%')

-- Metabase: is not
SELECT COUNT(*) AS "count" FROM "public"."survey" WHERE (("public"."survey"."region" <> 'north') OR ("public"."survey"."region" IS NULL))

-- Metabase: a month of dates
SELECT COUNT(*) AS "count" FROM "public"."survey" WHERE "public"."survey"."joined" >= DATE '2020-01-01' AND "public"."survey"."joined" < (DATE '2020-01-01' + INTERVAL '1 month')

-- Metabase: a day of timestamps with time zone
SELECT COUNT(*) AS "count" FROM "public"."survey" WHERE "public"."survey"."seen" >= timestamp with time zone '2020-01-01 00:00:00.000Z' AND "public"."survey"."seen" < timestamp with time zone '2020-01-02 00:00:00.000Z'

-- Metabase: since a time with time zone
SELECT COUNT(*) AS "count" FROM "public"."survey" WHERE "public"."survey"."joined" >= timestamp with time zone '2020-01-01 00:00:00.000+00:00'

-- Metabase: days of the week, ISO
SELECT CAST(EXTRACT(isodow FROM "public"."survey"."joined") AS integer) AS "d", COUNT(*) AS "count" FROM "public"."survey" GROUP BY CAST(EXTRACT(isodow FROM "public"."survey"."joined") AS integer) ORDER BY 1

-- Metabase: days of the week
SELECT (CAST(extract(dow FROM "public"."survey"."joined") AS integer) + 1) AS "d", count(*) AS "count" FROM "public"."survey" GROUP BY (CAST(extract(dow FROM "public"."survey"."joined") AS integer) + 1) ORDER BY 1

-- Metabase: a pivot
SELECT "source"."pivot-grouping" AS "pivot-grouping", "source"."region" AS "region", "source"."count" AS "count" FROM (SELECT ABS(0) AS "pivot-grouping", "public"."survey"."region" AS "region", COUNT(*) AS "count" FROM "public"."survey" GROUP BY "public"."survey"."region" ORDER BY "public"."survey"."region" ASC) AS "source"

-- Metabase: a median
SELECT PERCENTILE_CONT(0.5) within group (order by "public"."survey"."age") AS "median" FROM "public"."survey"

-- Grafana: a table panel between times
SELECT region AS metric, count(*) AS value FROM survey WHERE joined BETWEEN '2020-01-01T00:00:00Z' AND '2020-02-01T00:00:00Z' GROUP BY 1 ORDER BY 1

-- Grafana: a time series by day
SELECT date_trunc('day', joined)::timestamp AS "time", count(*) FROM survey WHERE joined >= '2020-01-10' GROUP BY 1 ORDER BY 1

-- Grafana: $__timeGroup of a week
SELECT floor(extract(epoch from joined)/604800)*604800 AS "time", count(*) AS n FROM survey GROUP BY 1 ORDER BY 1

-- Grafana: $__unixEpoch of a day
SELECT (extract(epoch from joined)/86400)::bigint AS "time", count(*) AS n FROM survey WHERE joined < '2020-01-05' GROUP BY 1 ORDER BY 1

-- Tableau: the number of records
SELECT "survey"."region" AS "region", SUM(1) AS "sum:Number of Records:ok" FROM "public"."survey" "survey" GROUP BY 1

-- Tableau: a count with HAVING
SELECT "survey"."region" AS "region", COUNT(1) AS "cnt:survey:ok" FROM "public"."survey" "survey" GROUP BY 1 HAVING (COUNT(1) > 0)

-- Tableau: an average by ordinal
SELECT AVG(CAST("survey"."wage" AS DOUBLE PRECISION)) AS "avg:wage:ok", "survey"."region" AS "region" FROM "public"."survey" "survey" GROUP BY 2

-- Tableau: the parts of an average
SELECT SUM("survey"."wage") AS "TEMP(x)(1)", COUNT("survey"."wage") AS "TEMP(x)(2)" FROM "public"."survey" "survey" HAVING (COUNT(1) > 0)

-- Tableau: years
SELECT CAST(TRUNC(EXTRACT(YEAR FROM "survey"."joined")) AS INTEGER) AS "yr:joined:ok", COUNT(*) AS "n" FROM "public"."survey" "survey" GROUP BY 1

-- Tableau: quarters
SELECT CAST(EXTRACT(QUARTER FROM "survey"."joined") AS INTEGER) AS "q", COUNT(*) AS n FROM survey GROUP BY 1

-- Tableau: a dimension as text
SELECT CAST("survey"."age" AS TEXT) AS a, COUNT(*) FROM survey WHERE "survey"."age" < 3 GROUP BY 1 ORDER BY 2 DESC NULLS LAST

-- Tableau: a group
SELECT (CASE WHEN ("survey"."region" IN ('north', 'east')) THEN 'cold' WHEN (NOT ("survey"."region" IN ('north', 'east'))) THEN 'warm' ELSE NULL END) AS "Calculation_1", SUM("survey"."wage") AS s FROM survey GROUP BY 1

-- DBeaver: the rows of a table
SELECT count(*) FROM public.survey t

-- DBeaver: the first rows of a result
SELECT region, count(*) FROM survey GROUP BY region HAVING (count(*)) > 0 ORDER BY count(*) DESC NULLS LAST FETCH FIRST 2 ROWS ONLY

-- DBeaver: a result, sorted
SELECT t.region, t.n FROM (SELECT region, count(*) AS n FROM survey GROUP BY region) t ORDER BY t.n DESC LIMIT 200 OFFSET 0

-- SQLAlchemy: a subquery
SELECT anon_1.region, anon_1.n FROM (SELECT survey.region AS region, count(*) AS n FROM survey GROUP BY survey.region) AS anon_1 WHERE anon_1.n > 10

-- SQLAlchemy: ilike
SELECT count(*) AS count_1 FROM survey WHERE survey.region ILIKE '%OR%'

-- a dashboard: COALESCE of key and sum
SELECT COALESCE(region, '(none)') AS r, COALESCE(SUM(wage), 0) AS w FROM survey GROUP BY COALESCE(region, '(none)')

-- a dashboard: ROUND of an average
SELECT region, ROUND(AVG(wage)::numeric, 2) AS m FROM survey GROUP BY region

-- a dashboard: per cent of the total, window
SELECT region, ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 1) AS pct FROM survey GROUP BY region

-- a dashboard: per cent of the total, subquery
SELECT region, COUNT(*) * 100.0 / (SELECT COUNT(*) FROM survey) AS pct FROM survey GROUP BY region ORDER BY pct DESC

-- a dashboard: months as text
SELECT to_char(joined, 'YYYY-MM') AS month, COUNT(*) FROM survey GROUP BY to_char(joined, 'YYYY-MM') ORDER BY month

-- a dashboard: months as text of a bucket
SELECT to_char(date_trunc('month', joined), 'YYYY-MM-DD') AS m, count(*) FROM survey GROUP BY 1

-- a dashboard: two FILTERs
SELECT region, COUNT(*) FILTER (WHERE married) AS m, COUNT(*) FILTER (WHERE NOT married) AS u FROM survey GROUP BY region

-- a dashboard: subtotals
SELECT region, married, COUNT(*) FROM survey GROUP BY GROUPING SETS ((region), (married), ())

-- a dashboard: date_part
SELECT date_part('year', joined) AS y, COUNT(*) FROM survey GROUP BY date_part('year', joined)

-- pandas: groupby size
SELECT "region", "married", COUNT(*) AS "size" FROM "survey" WHERE "age" IS NOT NULL GROUP BY "region", "married" ORDER BY "size" DESC, "region" ASC NULLS FIRST

-- a dashboard: year and month as text
SELECT EXTRACT(YEAR FROM joined)::int || '-' || LPAD(EXTRACT(MONTH FROM joined)::text, 2, '0') AS ym, COUNT(*) FROM survey GROUP BY 1

-- a dashboard: a key of two columns
SELECT CONCAT(region, ' / ', CASE WHEN married THEN 'yes' ELSE 'no' END) AS k, COUNT(*) FROM survey GROUP BY 1

-- a dashboard: the largest three
SELECT * FROM (SELECT region, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC) AS rn FROM survey GROUP BY region) t WHERE rn <= 3

-- a dashboard: the change from row to row
SELECT region, COUNT(*) AS n, COUNT(*) - LAG(COUNT(*)) OVER (ORDER BY region) AS d FROM survey GROUP BY region

-- a dashboard: a mean by hand
SELECT SUM(wage) / NULLIF(COUNT(wage), 0) AS m FROM survey

-- a dashboard: spreads
SELECT SUM(wage) / COUNT(*) AS m, STDDEV(age) AS sd, VARIANCE(age) AS v FROM survey

-- a dashboard: a prefix of a number
SELECT count(*) AS n FROM survey WHERE age::text LIKE '1%'

-- a dashboard: filters in brackets
SELECT count(*) AS n FROM survey WHERE 1 = 1 AND (married = 't') AND (region) IN ('north') AND NOT (age IN (1, 2))

-- a dashboard: one day as a timestamp
SELECT count(*) AS n FROM survey WHERE joined = '2020-01-05'::timestamp

-- a dashboard: epochs
SELECT EXTRACT(EPOCH FROM joined) AS e, COUNT(*) FROM survey WHERE joined < '2020-01-01' GROUP BY 1

-- a dashboard: quarters by alias
SELECT date_trunc('quarter', joined)::date AS q, COUNT(*) FROM survey GROUP BY q ORDER BY q

-- a dashboard: dates as timestamps
SELECT CAST(joined AS timestamp without time zone) AS j, COUNT(*) FROM survey WHERE joined < '2020-01-01' GROUP BY 1

-- a dashboard: a condition as a key
SELECT age BETWEEN 10 AND 20 AS b, COUNT(*) FROM survey GROUP BY 1

-- a dashboard: a number as VARCHAR
SELECT CAST(age AS VARCHAR(10)) AS a, COUNT(*) FROM survey WHERE age < 3 GROUP BY CAST(age AS VARCHAR(10))

-- a dashboard: SUBSTRING FROM FOR
SELECT UPPER(SUBSTRING(region FROM 1 FOR 1)) || SUBSTRING(region FROM 2) AS r, COUNT(*) FROM survey GROUP BY 1

-- a dashboard: constants
SELECT region AS "Region", 'x' AS "Const", NULL AS "Nothing", COUNT(*) FROM survey GROUP BY region

-- a dashboard: pairs of values
SELECT COUNT(*) FROM survey WHERE (region, married) IN (('north', true), ('south', false))

-- a dashboard: a regular expression without case
SELECT COUNT(*) FROM survey WHERE region ~* '^(n|s)'

-- a dashboard: not a regular expression
SELECT COUNT(*) FROM survey WHERE region !~ 'th$'

-- a dashboard: SIMILAR TO
SELECT COUNT(*) FROM survey WHERE region SIMILAR TO '(n|s)%'

-- a dashboard: a cumulative count
SELECT age, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY age ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS c FROM survey WHERE age < 5 GROUP BY age ORDER BY age

-- a dashboard: a condition as a number
SELECT SUM(CAST(married AS INT)) AS m FROM survey

-- a dashboard: the mean of a condition
SELECT SUM(married::int) AS m, AVG(married::int) AS share FROM survey

-- a dashboard: an order of its own
SELECT region, COUNT(*) FROM survey GROUP BY region ORDER BY CASE region WHEN 'north' THEN 1 WHEN 'south' THEN 2 ELSE 3 END

-- a dashboard: whether any, whether all
SELECT bool_or(married) AS any, every(age >= 0) AS all FROM survey

-- a dashboard: one month
SELECT COUNT(*) AS n FROM survey WHERE date_trunc('month', joined) = '2020-01-01'

-- a dashboard: the month of a time
SELECT COUNT(*) AS n FROM survey WHERE date_trunc('month', joined) = date_trunc('month', timestamp '2020-01-15 10:00:00')

-- a dashboard: DATE()
SELECT DATE(joined) AS d, COUNT(*) FROM survey WHERE joined < '2020-01-01' GROUP BY 1

-- a dashboard: MOD
SELECT MOD(age, 7) AS m, COUNT(*) FROM survey GROUP BY MOD(age, 7)
