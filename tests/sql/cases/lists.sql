-- = ANY of an array
SELECT COUNT(*) FROM survey WHERE age = ANY(ARRAY[1, 2, 39])

-- = ANY of an array with a cast
SELECT COUNT(*) FROM survey WHERE age = ANY(ARRAY[1, 2, 39]::int[])

-- = ANY of an array of texts
SELECT COUNT(*) FROM survey WHERE "Job Title" = ANY(ARRAY['clerk', 'O''Neil''s'])

-- = ANY of an array literal
SELECT COUNT(*) FROM survey WHERE age = ANY('{1,2, 39}')

-- = ANY of an array literal with a cast
SELECT COUNT(*) FROM survey WHERE age = ANY('{1,2,39}'::bigint[])

-- = ANY of a typed array literal
SELECT COUNT(*) FROM survey WHERE age = ANY(CAST('{1,2,39}' AS int4[]))

-- = ANY of quoted elements
SELECT "Job Title", COUNT(*) FROM survey WHERE "Job Title" = ANY('{"O''Neil''s", "50%_off", clerk , ""}') GROUP BY 1

-- = ANY of escaped elements
SELECT COUNT(*) FROM survey WHERE region = ANY('{"n\orth", so\uth, " east"}')

-- = ANY of a word that is no NULL
SELECT COUNT(*) FROM survey WHERE region = ANY('{"NULL", north}')

-- = ANY of NULL elements
SELECT children = ANY('{1,NULL}'), COUNT(*) FROM survey GROUP BY 1

-- = ANY of nothing
SELECT COUNT(*) FROM survey WHERE children = ANY('{}') OR age = 3

-- = ANY of an empty array
SELECT COUNT(*) FROM survey WHERE age = ANY(ARRAY[]::int[]) OR age = 3

-- = ANY of NULL
SELECT COUNT(*) FROM survey WHERE age = ANY(NULL) OR age = 3

-- = SOME
SELECT COUNT(*) FROM survey WHERE region = SOME('{north,east}')

-- NOT = ANY
SELECT COUNT(*) FROM survey WHERE NOT children = ANY('{1,2}')

-- <> ALL of an array
SELECT COUNT(*) FROM survey WHERE children <> ALL(ARRAY[1, 2])

-- <> ALL of an array literal
SELECT COUNT(*) FROM survey WHERE region <> ALL('{north,east}'::text[])

-- <> ALL with a NULL
SELECT COUNT(*) FROM survey WHERE children <> ALL('{1,NULL}')

-- <> ALL of nothing
SELECT COUNT(*) FROM survey WHERE children <> ALL('{}')

-- <> ANY
SELECT COUNT(*) FROM survey WHERE children <> ANY('{1,2}')

-- = ALL
SELECT COUNT(*) FROM survey WHERE children = ALL('{1,1}')

-- less than all
SELECT COUNT(*) FROM survey WHERE age < ALL('{12,20}')

-- at least some
SELECT COUNT(*) FROM survey WHERE age + 1 >= ANY(ARRAY[12, 20]) AND married

-- LIKE ANY
SELECT COUNT(*) FROM survey WHERE region LIKE ANY(ARRAY['n%', '%t'])

-- NOT LIKE ALL
SELECT COUNT(*) FROM survey WHERE region NOT LIKE ALL('{n%,%t}')

-- ILIKE ANY
SELECT COUNT(*) FROM survey WHERE region ILIKE ANY('{N%,S%}')

-- = ANY of dates
SELECT COUNT(*) FROM survey WHERE joined = ANY('{2020-01-05,2020-02-29}'::date[])

-- = ANY of decimals
SELECT COUNT(*) FROM survey WHERE score = ANY('{2.5,-1.50}')

-- = ANY of booleans
SELECT COUNT(*) FROM survey WHERE married = ANY('{t}')

-- the edges of bins in a list
-- raw
SELECT COUNT(*) FROM survey WHERE income >= ANY('{5,20}')

-- timestamps in a list
-- raw
SELECT COUNT(*) FROM survey WHERE seen < ANY('{2020-01-01 12:00:00,2020-01-02 00:00:00}'::timestamp[])

-- = ANY of public rows
SELECT COUNT(*) FROM survey WHERE region = ANY(SELECT place FROM places WHERE coast)

-- <> ALL of public rows
SELECT COUNT(*) FROM survey WHERE region <> ALL(SELECT place FROM places)

-- = ANY in FILTER and HAVING
SELECT region, COUNT(*) FILTER (WHERE age = ANY('{1,2,3}')) AS n FROM survey GROUP BY region HAVING region = ANY('{north,west}')

-- ANY over results
SELECT * FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t WHERE region = ANY('{north,west}') AND n > ALL('{1,2}')

-- a list in a list
SELECT COUNT(*) FROM survey WHERE (age = ANY('{1,2}')) = ANY('{true}')

-- LIMIT with a cast
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY region LIMIT 2::int

-- LIMIT in quotes
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY region LIMIT '3'

-- OFFSET with a cast
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY region LIMIT ('2'::bigint) OFFSET CAST(1 AS bigint)

-- LIMIT ALL
-- rows: 4
SELECT region, COUNT(*) AS n FROM survey GROUP BY region LIMIT ALL OFFSET 0

-- FETCH FIRST
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY region FETCH FIRST 2 ROWS ONLY

-- FETCH FIRST ROW
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY region OFFSET 1 ROW FETCH NEXT ROW ONLY

-- FETCH FIRST of a count in brackets
-- ordered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY region FETCH FIRST ('2'::int) ROWS ONLY
