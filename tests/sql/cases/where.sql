-- equality of text
-- raw
SELECT COUNT(*) FROM survey WHERE region = 'south'

-- inequality of text
SELECT COUNT(*) FROM survey WHERE region <> 'south'

-- the other inequality
SELECT COUNT(*) FROM survey WHERE region != 'south'

-- OR is not AND
SELECT COUNT(*) FROM survey WHERE region = 'south' OR "Job Title" = 'clerk'

-- AND on one column is not IN
SELECT COUNT(*) FROM survey WHERE age = 1 AND age = 2

-- OR on one column
SELECT COUNT(*) FROM survey WHERE age = 1 OR age = 2

-- AND before OR
SELECT COUNT(*) FROM survey WHERE age < 10 OR age > 30 AND region = 'east'

-- brackets
SELECT COUNT(*) FROM survey WHERE (age < 10 OR age > 30) AND region = 'east'

-- NOT of AND
SELECT COUNT(*) FROM survey WHERE NOT (age < 10 AND region = 'east')

-- NOT of OR with NULL
SELECT COUNT(*) FROM survey WHERE NOT (children > 2 OR married)

-- comparison with NULL
SELECT COUNT(*) FROM survey WHERE children = NULL

-- negative literals
SELECT COUNT(*) FROM survey WHERE children = -1 OR children < -(1)

-- a literal on the left
SELECT COUNT(*) FROM survey WHERE 10 < age AND -1 <> children

-- IN in any order
SELECT COUNT(*) FROM survey WHERE region IN ('west', 'north') AND age IN (3, 1, 2, 1)

-- IN with what is not in the domain
SELECT COUNT(*) FROM survey WHERE region IN ('west', 'nowhere')

-- NOT IN
SELECT COUNT(*) FROM survey WHERE region NOT IN ('west', 'north')

-- NOT IN of a column that may be NULL
SELECT COUNT(*) FROM survey WHERE children NOT IN (0, 1)

-- NOT IN with NULL is never true
SELECT COUNT(*) FROM survey WHERE children NOT IN (0, NULL)

-- IN with NULL
SELECT COUNT(*) FROM survey WHERE children IN (0, NULL)

-- IN with expressions
SELECT COUNT(*) FROM survey WHERE age IN (children, 2 * children, 7)

-- = ANY of a list
SELECT COUNT(*) FROM survey WHERE region = ANY (ARRAY['south', 'east'])

-- <> ALL of a list
SELECT COUNT(*) FROM survey WHERE age <> ALL (ARRAY[1, 2, 3])

-- BETWEEN
SELECT COUNT(*) FROM survey WHERE age BETWEEN 10 AND 20

-- BETWEEN the wrong way round
SELECT COUNT(*) FROM survey WHERE age BETWEEN 20 AND 10

-- BETWEEN SYMMETRIC
SELECT COUNT(*) FROM survey WHERE age BETWEEN SYMMETRIC 20 AND 10

-- NOT BETWEEN
SELECT COUNT(*) FROM survey WHERE age NOT BETWEEN 10 AND 20

-- IS NULL
SELECT COUNT(*) FROM survey WHERE children IS NULL

-- IS NOT NULL
SELECT COUNT(*) FROM survey WHERE children IS NOT NULL AND married IS NOT NULL

-- a boolean column
SELECT COUNT(*) FROM survey WHERE married

-- NOT a boolean column
SELECT COUNT(*) FROM survey WHERE NOT married

-- a boolean compared
SELECT COUNT(*) FROM survey WHERE married = FALSE

-- a boolean compared with text
SELECT COUNT(*) FROM survey WHERE married = 'yes'

-- IS TRUE
SELECT COUNT(*) FROM survey WHERE married IS TRUE

-- IS NOT TRUE holds of NULL
SELECT COUNT(*) FROM survey WHERE married IS NOT TRUE

-- IS UNKNOWN
SELECT COUNT(*) FROM survey WHERE (children > 1) IS UNKNOWN

-- IS DISTINCT FROM
SELECT COUNT(*) FROM survey WHERE children IS DISTINCT FROM 2

-- IS NOT DISTINCT FROM NULL
SELECT COUNT(*) FROM survey WHERE children IS NOT DISTINCT FROM NULL

-- a quoted number is a number
SELECT COUNT(*) FROM survey WHERE age = '5'

-- a quoted number with spaces
SELECT COUNT(*) FROM survey WHERE age = ' 5 '

-- decimals
SELECT COUNT(*) FROM survey WHERE score = 2.5 OR score = -1.50

-- a decimal written otherwise
SELECT COUNT(*) FROM survey WHERE score >= .250 AND score < 1e1

-- an integer compared with a decimal
SELECT COUNT(*) FROM survey WHERE age > 9.5 AND age <= 20.0

-- a comparison of columns
SELECT COUNT(*) FROM survey WHERE age > children * 10

-- a comparison of texts by order
SELECT COUNT(*) FROM survey WHERE region < 'south' AND "Job Title" > 'O'

-- quotes in a literal
SELECT COUNT(*) FROM survey WHERE "Job Title" = 'O''Neil''s'

-- an empty text is not NULL
SELECT COUNT(*) FROM survey WHERE "Job Title" = ''

-- text that is not ASCII
SELECT COUNT(*) FROM survey WHERE "Job Title" = 'Ärztin'

-- dollar quotes
SELECT COUNT(*) FROM survey WHERE "Job Title" = $$O'Neil's$$

-- LIKE
SELECT COUNT(*) FROM survey WHERE region LIKE '%t%'

-- LIKE with one character
SELECT COUNT(*) FROM survey WHERE region LIKE '_ast'

-- LIKE with an escaped per cent sign
SELECT COUNT(*) FROM survey WHERE "Job Title" LIKE '50\%%'

-- LIKE with an escaped underscore
SELECT COUNT(*) FROM survey WHERE "Job Title" LIKE '%\_off'

-- LIKE with another escape
SELECT COUNT(*) FROM survey WHERE "Job Title" LIKE '50!%!_off' ESCAPE '!'

-- NOT LIKE
SELECT COUNT(*) FROM survey WHERE region NOT LIKE 'n%'

-- ILIKE
SELECT COUNT(*) FROM survey WHERE region ILIKE 'SOU%' AND "Job Title" NOT ILIKE 'CLERK'

-- a regular expression
SELECT COUNT(*) FROM survey WHERE region ~ '^(s|w).*t'

-- a regular expression without case
SELECT COUNT(*) FROM survey WHERE region ~* 'NORTH' OR region !~ 'a'

-- a bin from its edge
-- raw
SELECT COUNT(*) FROM survey WHERE income >= 5

-- a bin up to its edge
-- raw
SELECT COUNT(*) FROM survey WHERE income < 20 AND income > -1

-- between whole bins
-- raw
SELECT COUNT(*) FROM survey WHERE income BETWEEN 0 AND 19

-- a predicate that holds of no bin
-- raw
SELECT COUNT(*) FROM survey WHERE income > 100

-- an expression that is the same inside each bin
-- raw
SELECT COUNT(*) FROM survey WHERE income / 5 >= 1 AND income / 100 = 0

-- two halves of a bin together
-- raw
SELECT COUNT(*) FROM survey WHERE income < 3 OR income >= 3

-- a month from its first day
-- raw
SELECT COUNT(*) FROM survey WHERE month >= '2020-02-01' AND month < '2020-05-01'

-- a month up to its last day
-- raw
SELECT COUNT(*) FROM survey WHERE month <= '2020-02-29'

-- a timestamp at its edges
-- raw
SELECT COUNT(*) FROM survey WHERE seen >= '2020-01-01 12:00:00' AND seen < '2020-01-02'

-- a coarser column
SELECT COUNT(*) FROM survey WHERE zone = 'cold'

-- a coarser column and its own
SELECT COUNT(*) FROM survey WHERE zone = 'cold' AND region <> 'north'

-- conditions on many columns
SELECT COUNT(*) FROM survey WHERE age > 5 AND income >= 0 AND region <> 'west' AND married AND children > 0 AND score > 0 AND month > '2020-03-31'

-- a long OR
SELECT COUNT(*) FROM survey WHERE age = 1 OR age = 3 OR age = 5 OR age = 7 OR age = 9 OR age = 11 OR age = 13 OR age = 15

-- comments
SELECT COUNT(*) /* all */ FROM survey -- who
WHERE age > 5 /* a /* nested */ one */

-- a statement on several lines
SELECT
  COUNT(*)
FROM
  survey
WHERE
  age > 5
;

-- rows
SELECT COUNT(*) FROM survey WHERE (region, married) = ('north', true)

-- rows that differ
SELECT COUNT(*) FROM survey WHERE (region, children) <> ('north', 3)

-- rows with ROW
SELECT COUNT(*) FROM survey WHERE ROW(age, children) = ROW(3, NULL) OR ROW(age, children) IN (ROW(4, 1), ROW(5, 2))

-- rows in a list
SELECT COUNT(*) FROM survey WHERE (region, children) IN (('north', 1), ('south', NULL), ('east', 2))

-- rows not in a list
SELECT COUNT(*) FROM survey WHERE (region, children) NOT IN (('north', 1), ('south', 2))

-- SIMILAR TO
SELECT COUNT(*) FROM survey WHERE region SIMILAR TO '(n|s)%'

-- NOT SIMILAR TO
SELECT COUNT(*) FROM survey WHERE region NOT SIMILAR TO '_o+r_*|w%'

-- SIMILAR TO a part
SELECT COUNT(*) FROM survey WHERE region SIMILAR TO 'or'

-- SIMILAR TO plain characters
SELECT COUNT(*) FROM survey WHERE "Job Title" SIMILAR TO '50.+|O''Neil''s|^%|%$'

-- a regular expression
SELECT COUNT(*) FROM survey WHERE region ~ '^n|s.u'

-- a regular expression without case
SELECT COUNT(*) FROM survey WHERE region ~* '^(N|S)' AND "Job Title" ~* 'ÄRZTIN|CLERK'

-- not a regular expression
SELECT COUNT(*) FROM survey WHERE region !~ 't$' AND region !~* 'ORTH'

-- a regular expression with a set
SELECT COUNT(*) FROM survey WHERE region ~ '^[ns][^t]*th?$'

-- a regular expression with digits and spaces
SELECT COUNT(*) FROM survey WHERE "Job Title" ~ '\d+' OR "Job Title" ~ '\s'
