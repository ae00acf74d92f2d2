-- a function that is not known
-- error: UndefinedFunctionError
-- says: function factorial is not among those the proxy knows
-- at: factorial
SELECT factorial(age) AS b, COUNT(*) FROM survey GROUP BY 1

-- a text's digest
-- error: UndefinedFunctionError
-- says: function md5 is not among those the proxy knows
SELECT MD5(region) AS r, COUNT(*) FROM survey GROUP BY 1

-- another time zone
-- error: NotSupportedError
-- says: AT TIME ZONE is not supported in an expression
SELECT COUNT(*) FROM survey WHERE seen AT TIME ZONE 'UTC' >= '2020-01-02'

-- a list of texts
-- error: NotSupportedError
-- says: is not a function of counts and sums that is known
SELECT STRING_AGG(region, ', ') FROM survey

-- rows of several lengths
-- error: NotSupportedError
-- says: rows are compared by =, <> and IN with rows of as many values
-- at: region, married
SELECT COUNT(*) FROM survey WHERE (region, married) IN (('north', true, 1))

-- rows in an order
-- error: NotSupportedError
-- says: rows are compared by =, <> and IN with rows of as many values
SELECT COUNT(*) FROM survey WHERE (age, children) < (3, 4)

-- a row as a value
-- error: NotSupportedError
-- says: a row of values is not supported in an expression
SELECT (1, 2), COUNT(*) FROM survey

-- a time with a zone that is none
-- error: DataError
-- says: invalid input syntax for type timestamp: "noon"
SELECT COUNT(*) FROM survey WHERE seen >= TIMESTAMPTZ 'noon'

-- TO_DATE of a column
-- error: NotSupportedError
-- says: to_date takes a text in quotes
SELECT COUNT(*) FROM survey WHERE joined >= TO_DATE(region, 'YYYY-MM-DD')

-- TO_DATE of what is written otherwise
-- error: DataError
-- says: "01/02/2020" is not written as to_date is told
SELECT COUNT(*) FROM survey WHERE joined >= TO_DATE('01/02/2020', 'YYYY-MM-DD')

-- TO_DATE by a format that is not known
-- error: NotSupportedError
-- says: to_date takes a text in quotes and a template of YYYY, YY, MM
SELECT COUNT(*) FROM survey WHERE joined >= TO_DATE('20 May', 'DD Mon')

-- a length that is computed
-- error: NotSupportedError
-- says: lpad takes a length in digits
SELECT LPAD(region, age) AS r, COUNT(*) FROM survey GROUP BY 1

-- SIMILAR TO with a set of characters
-- error: NotSupportedError
-- says: SIMILAR TO takes plain characters
SELECT COUNT(*) FROM survey WHERE region SIMILAR TO '[ns]%'

-- SIMILAR TO of a column
-- error: NotSupportedError
-- says: SIMILAR TO takes plain characters
SELECT COUNT(*) FROM survey WHERE region SIMILAR TO region

-- a regular expression with a look ahead
-- error: NotSupportedError
-- says: a regular expression takes plain characters
SELECT COUNT(*) FROM survey WHERE region ~ 'n(?=o)'

-- a regular expression with a back reference
-- error: NotSupportedError
-- says: a regular expression takes plain characters
SELECT COUNT(*) FROM survey WHERE region !~* '(n)\1'
