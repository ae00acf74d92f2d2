-- Metabase: rows by category
SELECT "public"."survey"."region" AS "region", COUNT(*) AS "count" FROM "public"."survey" GROUP BY "public"."survey"."region" ORDER BY "public"."survey"."region" ASC

-- Metabase: a numeric column in bins of ten
SELECT FLOOR(("public"."survey"."age" / 10.0)) * 10.0 AS "age", COUNT(*) AS "count" FROM "public"."survey" GROUP BY FLOOR(("public"."survey"."age" / 10.0)) * 10.0 ORDER BY FLOOR(("public"."survey"."age" / 10.0)) * 10.0 ASC

-- Metabase: rows by month
SELECT CAST(DATE_TRUNC('month', "public"."survey"."joined") AS date) AS "joined", COUNT(*) AS "count" FROM "public"."survey" GROUP BY CAST(DATE_TRUNC('month', "public"."survey"."joined") AS date) ORDER BY 1 ASC

-- Metabase: weeks that begin on Sunday
SELECT (CAST(DATE_TRUNC('week', (joined + INTERVAL '1 day')) AS timestamp) + INTERVAL '-1 day') AS "joined", COUNT(*) AS "count" FROM survey GROUP BY 1 ORDER BY 1

-- Metabase: day of the week
SELECT CAST(extract(dow from joined) AS integer) + 1 AS "joined", COUNT(*) AS "count" FROM survey GROUP BY CAST(extract(dow from joined) AS integer) + 1 ORDER BY 1

-- Metabase: the last thirty days
SELECT COUNT(*) AS "count" FROM survey WHERE joined >= CAST((NOW() + INTERVAL '-30 day') AS date) AND joined < CAST(NOW() AS date)

-- Metabase: a filter by a list
SELECT COUNT(*) AS "count" FROM survey WHERE (region = 'north' OR region = 'south') AND married = TRUE

-- Metabase: a custom expression
SELECT SUM(CASE WHEN married THEN wage ELSE 0.0 END) AS "sum" FROM survey

-- Metabase: share by condition
SELECT CAST(SUM(CASE WHEN age > 30 THEN 1 ELSE 0.0 END) AS float) / NULLIF(CAST(COUNT(*) AS float), 0) AS "share" FROM survey

-- Metabase: contains, without case
SELECT COUNT(*) AS "count" FROM survey WHERE (LOWER("Job Title") LIKE '%clerk%')

-- Metabase: is empty
SELECT COUNT(*) AS "count" FROM survey WHERE (married IS NULL) OR ("Job Title" = '')

-- Metabase: a question on a question
SELECT AVG("source"."count") AS "avg" FROM (SELECT region, COUNT(*) AS "count" FROM survey GROUP BY region) AS "source"

-- Metabase: two break-outs
SELECT region, zone, COUNT(*) AS "count", SUM(wage) AS "sum" FROM survey GROUP BY region, zone ORDER BY region ASC, zone ASC

-- Metabase: quarter of the year
SELECT CAST(extract(quarter from joined) AS integer) AS q, COUNT(*) AS n FROM survey GROUP BY 1 ORDER BY 1

-- Metabase: months between two dates
SELECT CAST(EXTRACT(year FROM age(joined, DATE '2019-01-01')) * 12 + EXTRACT(month FROM age(joined, DATE '2019-01-01')) AS integer) AS months, COUNT(*) AS n FROM survey GROUP BY 1 ORDER BY 1

-- Superset: a time series by day
SELECT DATE_TRUNC('day', joined) AS __timestamp, COUNT(*) AS "COUNT(*)" FROM survey WHERE joined >= TO_TIMESTAMP('2020-01-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND joined < TO_TIMESTAMP('2020-02-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') GROUP BY DATE_TRUNC('day', joined) ORDER BY "COUNT(*)" DESC LIMIT 10000

-- Superset: a series by category
SELECT DATE_TRUNC('month', joined) AS __timestamp, region AS region, COUNT(*) AS count FROM survey GROUP BY region, DATE_TRUNC('month', joined) ORDER BY count DESC LIMIT 50000

-- Superset: top categories, joined back
SELECT DATE_TRUNC('month', joined) AS __timestamp, s.region AS region, COUNT(*) AS n FROM survey s JOIN (SELECT region AS region__, COUNT(*) AS mme_inner__ FROM survey GROUP BY region ORDER BY mme_inner__ DESC LIMIT 2) AS series_limit ON s.region = series_limit.region__ GROUP BY 1, 2

-- Superset: a big number
SELECT COUNT(*) AS count FROM survey WHERE joined >= TO_DATE('2020-01-01', 'YYYY-MM-DD') LIMIT 50000

-- Superset: values of a filter
SELECT region AS region FROM survey GROUP BY region ORDER BY region ASC LIMIT 1000

-- Superset: distinct count
SELECT COUNT(DISTINCT region) AS "COUNT_DISTINCT(region)" FROM survey

-- Superset: a histogram
SELECT FLOOR(age / 5) * 5 AS bucket, COUNT(*) AS n FROM survey GROUP BY bucket ORDER BY bucket

-- Superset: a heat map of day and month
SELECT EXTRACT(ISODOW FROM joined) AS dow, TO_CHAR(joined, 'YYYY-MM') AS ym, COUNT(*) AS n FROM survey GROUP BY 1, 2

-- Superset: a virtual dataset
SELECT zone AS zone, SUM(n) AS "SUM(n)" FROM (SELECT zone, region, COUNT(*) AS n FROM survey GROUP BY 1, 2) AS virtual_table GROUP BY zone ORDER BY "SUM(n)" DESC LIMIT 100

-- Superset: a quarter of an hour
-- refused: bins; 0A000; is not the same for all values in the bin
SELECT DATE_BIN('15 minutes', seen, TIMESTAMP '2020-01-01') AS t, COUNT(*) AS n FROM survey GROUP BY 1

-- Superset: five minutes by arithmetic
-- refused: bins; 0A000; is not the same for all values in the bin
SELECT DATE_TRUNC('hour', seen) + INTERVAL '5 min' * FLOOR(EXTRACT(MINUTE FROM seen) / 5) AS t, COUNT(*) AS n FROM survey GROUP BY 1

-- Superset: a table with raw rows
-- refused: single rows; 0A000; the rows of a protected dataset are not shown
SELECT region, age, wage FROM survey ORDER BY age DESC LIMIT 100

-- Looker: a measure with a filter
SELECT survey.region AS "survey.region", COUNT(CASE WHEN survey.married THEN 1 ELSE NULL END) AS "survey.married_count" FROM public.survey AS survey GROUP BY 1 ORDER BY 2 DESC FETCH NEXT 500 ROWS ONLY

-- Looker: a date as text
SELECT DATE(survey.joined) AS d, COUNT(*) AS n FROM survey WHERE survey.joined >= TIMESTAMP '2020-01-05' GROUP BY 1 ORDER BY 1 DESC FETCH NEXT 500 ROWS ONLY

-- Looker: a tier
SELECT CASE WHEN age < 10 THEN 'T01 (-inf,10)' WHEN age >= 10 AND age < 20 THEN 'T02 [10,20)' WHEN age >= 20 THEN 'T03 [20,inf)' ELSE 'TXX Undefined' END AS tier, COUNT(*) AS n FROM survey GROUP BY 1 ORDER BY 1

-- Looker: yes and no
SELECT CASE WHEN married THEN 'Yes' ELSE 'No' END AS m, COUNT(*) AS n FROM survey GROUP BY 1 ORDER BY 1

-- Grafana: a time series by month
SELECT month AS "time", COUNT(*) AS value FROM survey GROUP BY 1 ORDER BY 1

-- Grafana: by hour as epoch
-- refused: bins; 0A000; is not the same for all values in the bin
SELECT EXTRACT(EPOCH FROM date_trunc('hour', seen)) AS time, COUNT(*) AS value FROM survey WHERE seen BETWEEN '2020-01-01T00:00:00' AND '2020-01-04T00:00:00' GROUP BY 1 ORDER BY 1

-- Tableau: a bar chart
SELECT "survey"."region" AS "region", SUM(1) AS "sum:Number of Records:ok" FROM "public"."survey" "survey" GROUP BY 1

-- Tableau: a date part
SELECT CAST(TRUNC(EXTRACT(YEAR FROM "survey"."joined")) AS INTEGER) AS "yr:joined:ok", COUNT(1) AS n FROM "public"."survey" "survey" GROUP BY 1

-- Tableau: a month truncated
SELECT CAST(DATE_TRUNC('MONTH', CAST("survey"."joined" AS DATE)) AS DATE) AS "tmn:joined:ok", COUNT(1) AS n FROM "public"."survey" "survey" GROUP BY 1

-- Tableau: a test for groups
SELECT COUNT(1) AS "x" FROM "public"."survey" "survey" HAVING (COUNT(1) > 0)

-- Power BI: the top of a table
select "_"."region", "_"."a0" from (select "rows"."region" as "region", sum("rows"."wage") as "a0" from "public"."survey" "rows" group by "region") "_" where not "_"."a0" is null limit 1001

-- Redash: a parameterised range
SELECT region, COUNT(*) AS n FROM survey WHERE joined BETWEEN '2020-01-01' AND '2020-01-31' GROUP BY region

-- Mode: month names
SELECT TO_CHAR(joined, 'Mon YYYY') AS month, COUNT(*) AS n FROM survey GROUP BY 1
