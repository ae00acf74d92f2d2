-- lower and upper
SELECT lower("Job Title") AS l, upper(region) AS u, COUNT(*) FROM survey GROUP BY 1, 2

-- lengths
SELECT length("Job Title") AS a, char_length(region) AS b, octet_length("Job Title") AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- parts of a text
SELECT substring("Job Title", 2, 3) AS a, substr(region, 2) AS b, COUNT(*) FROM survey GROUP BY 1, 2

-- parts from before the beginning
SELECT substring("Job Title" FROM -1 FOR 4) AS a, substr(region, 0, 3) AS b, substr(region, -5) AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- parts past the end
SELECT substring(region, 4, 100) AS a, substring(region, 100) AS b, COUNT(*) FROM survey GROUP BY 1, 2

-- left and right
SELECT left("Job Title", 2) AS a, right(region, 2) AS b, left(region, -1) AS c, right("Job Title", -3) AS d, left(region, 0) AS e, COUNT(*) FROM survey GROUP BY 1, 2, 3, 4, 5

-- trims
SELECT trim(both 'n' from region) AS a, ltrim(region, 'sn') AS b, rtrim(region, 'ht') AS c, trim("Job Title") AS d, btrim(region) AS e, COUNT(*) FROM survey GROUP BY 1, 2, 3, 4, 5

-- positions
SELECT position('t' IN region) AS a, strpos(region, 'st') AS b, strpos(region, '') AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- replacements
SELECT replace(region, 't', '--') AS a, replace("Job Title", '', 'x') AS b, COUNT(*) FROM survey GROUP BY 1, 2

-- parts between separators
SELECT split_part("Job Title", '_', 1) AS a, split_part("Job Title", '_', 2) AS b, split_part(region, 'r', -1) AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- joins of texts
SELECT region || '/' || "Job Title" AS a, region || age AS b, COUNT(*) FROM survey WHERE age < 3 GROUP BY 1, 2

-- joins with NULL
SELECT region || NULL AS a, concat(region, NULL, children) AS b, concat_ws('-', region, children, zone) AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- reverse and starts_with
SELECT reverse(region) AS a, starts_with(region, 'no') AS b, COUNT(*) FROM survey GROUP BY 1, 2

-- absolute values and signs
SELECT abs(children) AS a, sign(score) AS b, sign(children) AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- floors and ceilings
SELECT floor(score) AS a, ceil(score) AS b, ceiling(children / 2.0) AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- rounding halves of numerics
SELECT round(score) AS a, round(score, 1) AS b, round(score * 3, 1) AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- rounding halves of doubles
SELECT round(children / 2::float8) AS a, round(age::float8 / 4) AS b, COUNT(*) FROM survey GROUP BY 1, 2

-- truncation
SELECT trunc(score) AS a, trunc(score * 3, 1) AS b, trunc(children / 2::float8) AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- whole division and remainders of negative numbers
SELECT children / 2 AS a, children % 2 AS b, mod(children, 3) AS c, (-7) / 2 AS d, (-7) % 2 AS e, COUNT(*) FROM survey GROUP BY 1, 2, 3, 4, 5

-- division of decimals
SELECT round(age / 7.0, 6) AS a, score / 2 AS b, COUNT(*) FROM survey GROUP BY 1, 2

-- remainders of decimals
SELECT score % 1 AS a, mod(score, 0.75) AS b, COUNT(*) FROM survey GROUP BY 1, 2

-- powers and roots
SELECT power(age, 2) AS a, age ^ 2 AS b, sqrt(age) AS c, cbrt(age) AS d, COUNT(*) FROM survey GROUP BY 1, 2, 3, 4

-- exponentials and logarithms
SELECT exp(children) AS a, ln(age + 1) AS b, log(age + 1) AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- greatest and least
SELECT greatest(children, 2) AS a, least(age, children) AS b, greatest(region, 'p') AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- COALESCE and NULLIF
SELECT COALESCE(children, -1) AS a, NULLIF(children, 0) AS b, COALESCE(married::text, 'unknown') AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- casts to text
SELECT age::text AS a, score::text AS b, married::text AS c, joined::text AS d, COUNT(*) FROM survey WHERE age < 2 GROUP BY 1, 2, 3, 4

-- casts to integers round
SELECT score::int AS a, (score * 3)::bigint AS b, (children / 2::float8)::int AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- casts of booleans
SELECT married::int AS a, (children)::boolean AS b, COUNT(*) FROM survey GROUP BY 1, 2

-- casts of texts
SELECT (CASE WHEN married THEN '1' ELSE ' 0 ' END)::int AS a, (CASE WHEN married THEN 'yes' ELSE 'f' END)::boolean AS b, COUNT(*) FROM survey GROUP BY 1, 2

-- casts to numerics
SELECT age::numeric / 3 > 3.33 AS a, (score * 1.111)::numeric(10, 2) AS b, CAST(age AS decimal(5, 1)) AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- casts to doubles
SELECT score::float8 * 3 AS a, age::double precision / 8 AS b, age::real AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- casts to short texts
SELECT region::varchar(2) AS a, COUNT(*) FROM survey GROUP BY 1

-- NULL in arithmetic
SELECT children + NULL AS a, COUNT(*) FROM survey GROUP BY children + NULL

-- CASE without ELSE
SELECT CASE WHEN married THEN region END AS a, COUNT(*) FROM survey GROUP BY 1

-- CASE of a NULL
SELECT CASE children WHEN NULL THEN 'never' WHEN 0 THEN 'none' ELSE 'some' END AS a, COUNT(*) FROM survey GROUP BY 1

-- nested CASE
SELECT CASE WHEN age > 20 THEN CASE WHEN married THEN 'a' ELSE 'b' END ELSE 'c' END AS k, COUNT(*) FROM survey GROUP BY 1

-- precedence of signs
SELECT -age % 3 AS a, 2 - -children AS b, - (-children) AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- precedence of powers
SELECT 2 * age ^ 2 AS a, -age ^ 2 AS b, COUNT(*) FROM survey GROUP BY 1, 2

-- comparisons as values
SELECT (age > 10) = married AS a, COUNT(*) FROM survey GROUP BY 1

-- LPAD and RPAD
SELECT LPAD(region, 7, '*') AS a, RPAD(region, 2) AS b, LPAD(region, 6, 'xy') AS c, RPAD(region, 7, '') AS d, LPAD(region, 0) AS e, COUNT(*) FROM survey GROUP BY region

-- LPAD of numbers
SELECT LPAD(age::text, 2, '0') AS a, COUNT(*) FROM survey WHERE age < 12 GROUP BY 1

-- RPAD with NULL
SELECT RPAD(region, 7, NULL) AS a, COUNT(*) FROM survey GROUP BY region

-- TO_DATE and TO_TIMESTAMP
SELECT COUNT(*) FILTER (WHERE joined >= TO_DATE('2020-02-01', 'YYYY-MM-DD')) AS a, COUNT(*) FILTER (WHERE joined < TO_TIMESTAMP('2020-02-01 00:00:00.000001', 'YYYY-MM-DD HH24:MI:SS.US')) AS b FROM survey

-- times with a zone
SELECT COUNT(*) FILTER (WHERE joined >= TIMESTAMPTZ '2020-01-31 23:30:00-01') AS a, COUNT(*) FILTER (WHERE joined < '2020-02-01 01:00+01:00'::timestamptz) AS b FROM survey

-- DATE of a timestamp
SELECT DATE(joined + INTERVAL '36 hours') AS d, COUNT(*) FROM survey GROUP BY 1

-- conditions of all and of some
SELECT region, BOOL_OR(children > 4) AS a, BOOL_AND(age >= 1) AS b, EVERY(married) AS c FROM survey GROUP BY region

-- of results
SELECT EVERY(n > 100) AS a, BOOL_OR(n > 150) AS b FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t

-- CONCAT of a condition
SELECT concat(married) AS a, concat_ws('/', married, age > 20) AS b, married::text || '' AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- CONCAT of a condition, compared
SELECT COUNT(*) AS n, concat(COUNT(*) > 3, '!', COUNT(*)) AS a FROM survey WHERE concat(married) = 't'
