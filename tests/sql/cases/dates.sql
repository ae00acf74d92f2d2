-- a date compared with text
SELECT COUNT(*) FROM survey WHERE joined >= '2020-01-15'

-- a date literal
SELECT COUNT(*) FROM survey WHERE joined = DATE '2020-02-29'

-- a date between
SELECT COUNT(*) FROM survey WHERE joined BETWEEN '2020-01-01' AND '2020-01-31'

-- a date cast
SELECT COUNT(*) FROM survey WHERE joined > CAST('2020-02-01' AS date) AND joined <> '2020-02-10'::date

-- a date compared with a timestamp
SELECT COUNT(*) FROM survey WHERE joined < TIMESTAMP '2020-01-15 12:00:00'

-- days added
SELECT COUNT(*) FROM survey WHERE joined + 30 > DATE '2020-03-01' AND joined - 1 < '2020-02-20'

-- months subtracted
SELECT COUNT(*) FROM survey WHERE joined >= DATE '2020-03-31' - INTERVAL '1 month'

-- an interval with its unit outside
SELECT COUNT(*) FROM survey WHERE joined >= DATE '2020-03-01' - INTERVAL '10' DAY

-- days between
SELECT (joined - DATE '2020-01-01') / 7 AS week, COUNT(*) FROM survey GROUP BY 1

-- date_trunc
SELECT date_trunc('month', joined)::date AS m, COUNT(*) FROM survey GROUP BY 1

-- date_trunc of weeks
SELECT date_trunc('week', joined)::date AS w, COUNT(*) FROM survey GROUP BY 1 ORDER BY 1

-- date_trunc of quarters and years
SELECT date_trunc('quarter', joined)::date AS q, date_trunc('year', joined)::date AS y, COUNT(*) FROM survey GROUP BY 1, 2

-- EXTRACT
SELECT EXTRACT(year FROM joined) AS y, EXTRACT(month FROM joined) AS m, COUNT(*) FROM survey GROUP BY 1, 2

-- days of the week and of the year
SELECT EXTRACT(dow FROM joined) AS a, EXTRACT(isodow FROM joined) AS b, EXTRACT(doy FROM joined) AS c, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- weeks and their years
SELECT EXTRACT(week FROM joined) AS w, EXTRACT(isoyear FROM joined) AS y, EXTRACT(day FROM joined) AS d, COUNT(*) FROM survey GROUP BY 1, 2, 3

-- quarters, decades, centuries, seconds
SELECT EXTRACT(quarter FROM joined) AS q, EXTRACT(decade FROM joined) AS d, EXTRACT(century FROM joined) AS c, EXTRACT(epoch FROM joined) AS e, COUNT(*) FROM survey GROUP BY 1, 2, 3, 4

-- date_part
SELECT date_part('month', joined) AS m, COUNT(*) FROM survey GROUP BY 1

-- to_char
SELECT to_char(joined, 'YYYY-MM') AS m, to_char(joined, 'DD.MM.YYYY') AS d, COUNT(*) FROM survey GROUP BY 1, 2

-- make_date
SELECT make_date(2020, 1, age + 1 - age / 31 * 31) AS d, COUNT(*) FROM survey WHERE age < 31 GROUP BY 1

-- quarters of months
SELECT date_trunc('quarter', month)::date AS q, COUNT(*) FROM survey GROUP BY 1

-- the month of months
SELECT EXTRACT(month FROM month) AS m, COUNT(*) FROM survey GROUP BY 1

-- days of intervals of time
SELECT COUNT(*) FROM survey WHERE seen < '2020-01-02'

-- dates as text
SELECT joined::text LIKE '2020-01-%' AS january, COUNT(*) FROM survey GROUP BY 1

-- dates with time
SELECT joined + INTERVAL '36 hours' AS t, COUNT(*) FROM survey WHERE joined < '2020-01-01' GROUP BY 1

-- days of a timestamp that are whole bins
-- raw
SELECT COUNT(*) FROM survey WHERE seen::date >= '2020-01-02'

-- the month of a timestamp
-- raw
SELECT date_trunc('month', seen) AS m, COUNT(*) FROM survey GROUP BY 1

-- the year of a timestamp
-- raw
SELECT EXTRACT(year FROM seen) AS y, COUNT(*) FROM survey GROUP BY 1
