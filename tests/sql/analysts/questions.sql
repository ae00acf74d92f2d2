-- Stack Overflow: the most frequent value
SELECT region FROM survey GROUP BY region ORDER BY COUNT(*) DESC LIMIT 1

-- Stack Overflow: mode by aggregate
SELECT mode() WITHIN GROUP (ORDER BY children) AS m FROM survey

-- Stack Overflow: count if
SELECT COUNT(CASE WHEN age >= 18 THEN 1 END) AS adults FROM survey

-- Stack Overflow: count of a cast condition
SELECT SUM((age > 20)::int) AS older FROM survey

-- Stack Overflow: duplicates
SELECT age, COUNT(*) AS n FROM survey GROUP BY age HAVING COUNT(*) > 1

-- Stack Overflow: rows above the average
SELECT COUNT(*) AS n FROM survey WHERE age > (SELECT AVG(age) FROM survey)

-- Stack Overflow: records of the top groups
SELECT COUNT(*) AS n FROM survey WHERE region IN (SELECT region FROM survey GROUP BY region ORDER BY COUNT(*) DESC LIMIT 2)

-- Stack Overflow: records whose key is in a table
SELECT COUNT(*) AS n FROM survey WHERE region IN (SELECT place FROM places WHERE coast)

-- Stack Overflow: records without a partner
SELECT COUNT(*) AS n FROM survey s WHERE NOT EXISTS (SELECT 1 FROM places p WHERE p.place = s.region)

-- Stack Overflow: anti-join
SELECT COUNT(*) AS n FROM survey s LEFT JOIN places p ON p.place = s.region WHERE p.place IS NULL

-- Stack Overflow: a histogram by width_bucket
SELECT width_bucket(age, 0, 40, 4) AS bucket, COUNT(*) AS n FROM survey GROUP BY bucket ORDER BY bucket

-- Stack Overflow: width_bucket of thresholds
SELECT width_bucket(age, ARRAY[10, 18, 30]) AS bucket, COUNT(*) AS n FROM survey GROUP BY 1 ORDER BY 1

-- Stack Overflow: the edges of width_bucket
SELECT (width_bucket(age, 0, 40, 4) - 1) * 10 AS lo, COUNT(*) AS n FROM survey GROUP BY 1 ORDER BY 1

-- Stack Overflow: an age group as text
SELECT (age / 10) * 10 || '-' || (age / 10) * 10 + 9 AS label, COUNT(*) AS n FROM survey GROUP BY age / 10

-- Stack Overflow: an age group by concat
SELECT CONCAT(FLOOR(age / 10) * 10, ' to ', FLOOR(age / 10) * 10 + 9) AS label, COUNT(*) AS n FROM survey GROUP BY FLOOR(age / 10)

-- Stack Overflow: intervals of fifteen minutes
-- refused: bins; 0A000; is not the same for all values in the bin
SELECT date_trunc('hour', seen) + date_part('minute', seen)::int / 15 * INTERVAL '15 min' AS t, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: epoch rounding
-- refused: bins; 0A000; seen is declared in bins
SELECT to_timestamp(floor(extract(epoch FROM seen) / 43200) * 43200)::timestamp AS t, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: weeks from a fixed start
SELECT (joined - DATE '2019-12-28') / 7 AS week, COUNT(*) AS n FROM survey GROUP BY 1 ORDER BY 1

-- Stack Overflow: days since
SELECT DATE '2020-03-03' - joined AS days, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: years between by age()
SELECT date_part('year', age(DATE '2024-06-01', joined)) AS years, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: the last day of the month
SELECT (date_trunc('month', joined) + INTERVAL '1 month' - INTERVAL '1 day')::date AS last, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: weekend or not
SELECT CASE WHEN EXTRACT(dow FROM joined) IN (0, 6) THEN 'weekend' ELSE 'weekday' END AS kind, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: a name with capitals
SELECT initcap(region) AS region, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: the first letter
SELECT LEFT("Job Title", 1) AS letter, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: upper, trimmed
SELECT UPPER(TRIM("Job Title")) AS job, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: replaced characters
SELECT REPLACE("Job Title", '_', ' ') AS job, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: replaced by a regular expression
SELECT regexp_replace("Job Title", '[^a-zA-Z]', '', 'g') AS job, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: the nth part
SELECT split_part("Job Title", '_', 1) AS part, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: the length of a text
SELECT LENGTH("Job Title") AS len, COUNT(*) AS n FROM survey GROUP BY LENGTH("Job Title") ORDER BY len

-- Stack Overflow: an empty text as NULL
SELECT COALESCE(NULLIF("Job Title", ''), 'unknown') AS job, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: a translated text
SELECT translate(region, 'no', 'NO') AS r, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: a padded code
SELECT LPAD(age::text, 3, '0') AS code, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: greatest of two
SELECT GREATEST(children, 0) AS kids, COUNT(*) AS n FROM survey GROUP BY 1

-- Stack Overflow: an order of one's own
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY CASE region WHEN 'west' THEN 1 WHEN 'east' THEN 2 ELSE 3 END, region

-- Stack Overflow: an order by position in a list
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY array_position(ARRAY['west', 'east', 'north', 'south'], region)

-- Stack Overflow: NULLs as zero
SELECT COALESCE(children, 0) AS kids, COUNT(*) AS n FROM survey GROUP BY COALESCE(children, 0)

-- Stack Overflow: two counts in one row
SELECT (SELECT COUNT(*) FROM survey WHERE married) AS a, (SELECT COUNT(*) FROM survey WHERE NOT married) AS b

-- Stack Overflow: a ratio of two sums
SELECT SUM(wage) / NULLIF(SUM(bonus), 0) AS ratio FROM survey

-- Stack Overflow: a ratio that is not truncated
SELECT COUNT(*) FILTER (WHERE married)::float / COUNT(*) AS share FROM survey

-- Stack Overflow: a lateral subquery
-- refused: language; 0A000; FROM takes tables and subqueries
SELECT z.zone, t.region, t.n FROM (VALUES ('cold'), ('warm')) z(zone) CROSS JOIN LATERAL (SELECT region, n FROM (SELECT zone, region, COUNT(*) AS n FROM survey GROUP BY 1, 2) c WHERE c.zone = z.zone ORDER BY n DESC LIMIT 1) t
