-- division by zero for some value
-- error: DataError
-- says: division by zero
-- at: 10 / (age
SELECT COUNT(*) FROM survey WHERE 10 / (age - 5) > 1

-- division by zero that WHERE excludes
-- error: DataError
-- says: division by zero
-- at: 10 / age >
SELECT COUNT(*) FROM survey WHERE age > 5 AND 10 / age > 1

-- division by a zero
-- error: DataError
-- says: division by zero
-- at: age / 0 =
SELECT COUNT(*) FROM survey WHERE age / 0 = 1

-- the remainder of a division by zero
-- error: DataError
-- says: division by zero
-- at: 7 % age
SELECT COUNT(*) FROM survey GROUP BY 7 % age

-- a logarithm of zero
-- error: DataError
-- says: an expression fails for a value it may meet: cannot take logarithm of zero or a negative number
-- at: ln(age) >
SELECT COUNT(*) FROM survey WHERE ln(age) > 1

-- a root of a negative number
-- error: DataError
-- says: an expression fails for a value it may meet: cannot take square root of a negative number
-- at: sqrt(child
SELECT COUNT(*) FROM survey WHERE sqrt(children) > 1

-- an overflow
-- error: DataError
-- says: an expression fails for a value it may meet: integer out of range
-- at: age * 2147
SELECT SUM(age * 2147483647) FROM survey

-- a power that is not finite
-- error: DataError
-- says: an expression fails for a value it may meet: the power is not a finite number
-- at: power(age,
SELECT COUNT(*) FROM survey WHERE power(age, -1) > 0.5

-- a negative length
-- error: DataError
-- says: an expression fails for a value it may meet: negative substring length not allowed
-- at: region, 1,
SELECT COUNT(*) FROM survey WHERE substring(region, 1, -1) = ''

-- a text that is no number
-- error: DataError
-- says: an expression fails for a value it may meet: invalid input syntax for type integer
-- at: "Job Title
SELECT COUNT(*) FROM survey WHERE "Job Title"::int > 1

-- a quoted text that is no number
-- error: DataError
-- says: invalid input syntax for type integer: "five"
-- at: age = 'fiv
SELECT COUNT(*) FROM survey WHERE age = 'five'

-- a quoted decimal that is no integer
-- error: DataError
-- says: invalid input syntax for type integer: "5.5"
-- at: age = '5.5
SELECT COUNT(*) FROM survey WHERE age = '5.5'

-- a quoted text that is no date
-- error: DataError
-- says: invalid input syntax for type date: "2020-13-01"
-- at: joined > '
SELECT COUNT(*) FROM survey WHERE joined > '2020-13-01'

-- a quoted text that is no boolean
-- error: DataError
-- says: invalid input syntax for type boolean: "perhaps"
-- at: married =
SELECT COUNT(*) FROM survey WHERE married = 'perhaps'

-- a text compared with a number
-- error: UndefinedFunctionError
-- says: operator does not exist: text = integer
-- at: region = 5
SELECT COUNT(*) FROM survey WHERE region = 5

-- a boolean compared with a number
-- error: UndefinedFunctionError
-- says: operator does not exist: boolean = integer
-- at: married =
SELECT COUNT(*) FROM survey WHERE married = 1

-- a number as a condition
-- error: TypeMismatchError
-- says: argument of WHERE must be type boolean, not type integer
-- at: age
SELECT COUNT(*) FROM survey WHERE age

-- a text as a condition
-- error: TypeMismatchError
-- says: argument of WHERE must be type boolean, not type text
-- at: region AND
SELECT COUNT(*) FROM survey WHERE region AND married

-- a number added to a text
-- error: UndefinedFunctionError
-- says: operator does not exist: integer + text
-- at: age + regi
SELECT COUNT(*) FROM survey WHERE age + region > 1

-- a text summed
-- error: TypeMismatchError
-- says: SUM needs a number, not type text
-- at: region) FR
SELECT SUM(region) FROM survey

-- a date summed
-- error: TypeMismatchError
-- says: SUM needs a number, not type date
-- at: joined) FR
SELECT SUM(joined) FROM survey

-- a date compared with an interval
-- error: UndefinedFunctionError
-- says: operator does not exist: date > interval
-- at: joined > I
SELECT COUNT(*) FROM survey WHERE joined > INTERVAL '1 day'

-- an unknown interval
-- error: NotSupportedError
-- says: the interval '1 lightyear' is not known
-- at: '2020-01-0
SELECT COUNT(*) FROM survey WHERE joined > DATE '2020-01-01' - INTERVAL '1 lightyear'

-- branches of different types
-- error: TypeMismatchError
-- says: CASE types integer and text cannot be matched
-- at: married TH
SELECT COUNT(*) FROM survey GROUP BY CASE WHEN married THEN 1 ELSE region END

-- a pattern that ends with its escape
-- error: DataError
-- says: LIKE pattern must not end with escape character
-- at: region LIK
SELECT COUNT(*) FROM survey WHERE region LIKE '%\'

-- a pattern that is a column
-- error: NotSupportedError
-- says: LIKE takes a pattern in quotes
-- at: region LIK
SELECT COUNT(*) FROM survey WHERE region LIKE zone

-- a regular expression that looks ahead
-- error: NotSupportedError
-- says: a regular expression takes plain characters, . [...] * + ? | ^ $ \d \s \w
-- at: region ~ '
SELECT COUNT(*) FROM survey WHERE region ~ '(?=s)'

-- a number of too many digits
-- error: NotSupportedError
-- says: the number 99999999999999999999999999999999999999999 has more than 38 digits
-- at: 9999999999
SELECT COUNT(*) FROM survey WHERE 99999999999999999999999999999999999999999 > age

-- an unknown type
-- error: NotSupportedError
-- says: the type json is not supported in this form
-- at: age::json
SELECT COUNT(*) FROM survey WHERE age::json = '1'

-- a part of a text by index
-- error: NotSupportedError
-- says: a subscript, x[1], is not supported in an expression
-- at: region[1]
SELECT COUNT(*) FROM survey WHERE region[1] = 's'

-- IN of nothing
-- error: NotSupportedError
-- says: IN takes values
-- at: age IN ()
SELECT COUNT(*) FROM survey WHERE age IN ()

-- an unknown function
-- error: UndefinedFunctionError
-- says: function foo is not among those the proxy knows
-- at: foo(region
SELECT foo(region), COUNT(*) FROM survey GROUP BY 1

-- a function of the wrong type
-- error: UndefinedFunctionError
-- says: function lower(integer) does not exist
-- at: lower(age)
SELECT lower(age) FROM survey GROUP BY age

-- a random number in a condition
-- error: UndefinedFunctionError
-- says: function random is not among those the proxy knows
-- at: random() <
SELECT COUNT(*) FROM survey WHERE random() < 0.5

-- a field that is not known
-- error: NotSupportedError
-- says: unit "hour" not supported for type date
-- at: joined), C
SELECT EXTRACT(hour FROM joined), COUNT(*) FROM survey GROUP BY 1

-- a unit that is not known
-- error: DataError
-- says: unit "fortnight" not recognized for type date
-- at: date_trunc
SELECT date_trunc('fortnight', joined), COUNT(*) FROM survey GROUP BY 1

-- a numeric of more than 38 digits
-- error: NotSupportedError
-- says: numeric takes a precision of 1 to 38 and a scale within it
SELECT COUNT(*) FROM survey WHERE score::numeric(50, 2) > 1

-- a numeric whose scale is more than its precision
-- error: NotSupportedError
-- says: numeric takes a precision of 1 to 38 and a scale within it
SELECT COUNT(*) FROM survey WHERE score::numeric(2, 5) > 1

-- an aggregate moved by more than a double holds
-- error: NotSupportedError
-- says: COUNT(*) + 1e309 is scaled or moved by a number of more than 38 digits
SELECT COUNT(*) + 1e309 FROM survey

-- an aggregate multiplied by more than a double holds
-- error: NotSupportedError
-- says: is scaled or moved by a number of more than 38 digits
SELECT region, SUM(wage) * 1e200 * 1e200 FROM survey GROUP BY region

-- an aggregate divided by more than a double holds
-- error: NotSupportedError
-- says: is scaled or moved by a number of more than 38 digits
SELECT COUNT(*) / 1e309 FROM survey

-- a comma with nothing behind it
-- error: SQLSyntaxError
-- says: syntax error after ",": the expression is incomplete
-- at: FROM survey
SELECT COUNT(*), FROM survey

-- a comma at the end
-- error: SQLSyntaxError
-- says: syntax error after ",": the expression is incomplete
SELECT region, COUNT(*) FROM survey GROUP BY region,

-- GROUP BY with nothing behind it
-- error: SQLSyntaxError
-- says: syntax error after "GROUP BY": the expression is incomplete
-- at: ORDER
SELECT COUNT(*) FROM survey GROUP BY ORDER BY 1

-- OFFSET with nothing behind it
-- error: SQLSyntaxError
-- says: syntax error after "OFFSET": the expression is incomplete
SELECT COUNT(*) FROM survey OFFSET

-- no table
-- error: SQLSyntaxError
-- says: expected table name
SELECT COUNT(*) FROM

-- to_char with a time zone
-- error: NotSupportedError
-- says: to_char of a date does not know TZ
SELECT to_char(joined, 'YYYY TZ') AS m, COUNT(*) FROM survey GROUP BY 1

-- to_char of a number with letters that are words
-- error: NotSupportedError
-- says: to_char of a number takes digits
SELECT to_char(1.5, '9.9EEEE')

-- to_char by a column
-- error: NotSupportedError
-- says: to_char takes a template in quotes
SELECT COUNT(*) FROM survey WHERE to_char(age, region) = '1'

-- buckets without width
-- error: DataError
-- says: lower bound cannot equal upper bound
SELECT width_bucket(1, 2, 2, 5)

-- no bucket
-- error: DataError
-- says: count must be greater than zero
SELECT width_bucket(age, 0, 10, 0), COUNT(*) FROM survey GROUP BY 1

-- thresholds out of order
-- error: NotSupportedError
-- says: thresholds as numbers in ascending order
SELECT width_bucket(1, ARRAY[2, 1])

-- strides of months
-- error: NotSupportedError
-- says: timestamps cannot be binned into intervals containing months
SELECT date_bin('1 month', TIMESTAMP '2020-01-01', TIMESTAMP '2000-01-01')

-- a stride of nothing
-- error: DataError
-- says: stride must be greater than zero
SELECT date_bin('0 days', TIMESTAMP '2020-01-01', TIMESTAMP '2000-01-01')

-- strides that begin inside bins
-- error: NotSupportedError
-- says: seen is declared in bins
SELECT date_bin('12 hours', seen, TIMESTAMP '2020-01-01 00:00:01'), COUNT(*) FROM survey GROUP BY 1

-- a minute of bins of half days
-- error: CutError
-- says: is not the same for all values in the bin
SELECT to_char(seen, 'HH24:MI'), COUNT(*) FROM survey GROUP BY 1

-- an interval of months
-- error: DataError
-- says: years and months have no one length
SELECT age(DATE '2020-02-29', DATE '1999-12-31')

-- groups of an interval
-- error: NotSupportedError
-- says: an interval is no group
SELECT age(joined, DATE '1999-12-31')::text, COUNT(*) FROM survey GROUP BY age(joined, DATE '1999-12-31')

-- part of an interval
-- error: DataError
-- says: only whole numbers multiply a length of time
SELECT INTERVAL '1 day' * 1.5

-- an interval with a unit twice
-- error: NotSupportedError
-- says: the interval '1 day 2 days' is not known
SELECT INTERVAL '1 day 2 days'

-- a regular expression with a choice is another in RE2
-- error: NotSupportedError
-- says: regexp_replace takes a sequence of characters
SELECT regexp_replace('abc', 'a|ab', 'x')

-- a regular expression that matches nothing
-- error: NotSupportedError
-- says: regexp_replace takes a sequence of characters
SELECT regexp_replace('abc', 'x*', '-', 'g')

-- a series without an end
-- error: StatementTooComplexError
-- says: generate_series makes more than 10,000 rows
-- at: GENERATE
SELECT * FROM GENERATE_SERIES(1, 1000000000000)

-- a series of times without an end
-- error: StatementTooComplexError
-- says: generate_series makes more than 10,000 rows
SELECT * FROM generate_series(DATE '2000-01-01', DATE '2020-01-01', INTERVAL '1 second')

-- a series that stands still
-- error: DataError
-- says: step size cannot equal zero
SELECT * FROM generate_series(1, 2, 0)

-- a series as long as a result
-- error: NotSupportedError
-- says: generate_series takes whole numbers, or times and an interval
SELECT * FROM generate_series(1, (SELECT COUNT(*) FROM survey))

-- a list that is a result
-- error: NotSupportedError
-- says: unnest takes a list that is written out
SELECT * FROM unnest((SELECT COUNT(*) FROM survey))

-- minutes that are alike at the ends and in the middle of a bin
-- error: CutError
-- says: is not the same for all values in the bin
SELECT to_char(seen, 'MI'), COUNT(*) FROM survey GROUP BY 1

-- seconds of bins of half days
-- error: NotSupportedError
-- says: seen is declared in bins: only comparisons with constants are known
SELECT to_char(seen, 'SS'), COUNT(*) FROM survey GROUP BY 1

-- minutes of strides that are alike at the ends and in the middle of a bin
-- error: CutError
-- says: is not the same for all values in the bin
SELECT EXTRACT(minute FROM date_bin('15 min', seen, TIMESTAMP '2020-01-01')), COUNT(*) FROM survey GROUP BY 1

-- a length of time that is too long
-- error: DataError
-- says: EXTRACT its days
SELECT COUNT(*), INTERVAL '1 day' * 2147483647 FROM survey

-- a sum of lengths of time that is too long
-- error: DataError
-- says: interval out of range
SELECT INTERVAL '999999999 days' + INTERVAL '1 day'

-- a date after the year 9999
-- error: DataError
-- says: date out of range
SELECT DATE '9999-12-31' + 1

-- a date of results before the year 1
-- error: DataError
-- says: the years 1 to 9999 are shown
SELECT MIN(d - 1000000) FROM (SELECT joined AS d, COUNT(*) FROM survey GROUP BY joined) t

-- groups after the year 9999
-- error: DataError
-- says: date out of range
SELECT joined + 3000000 AS d, COUNT(*) FROM survey GROUP BY 1

-- the last of dates after the year 9999
-- error: DataError
-- says: the years 1 to 9999 are shown
SELECT MAX(joined + 3000000) FROM survey

-- groups of a public table after the year 9999
-- error: DataError
-- says: date out of range
SELECT d, COUNT(*) FROM survey JOIN (SELECT place, opened + 3000000 AS d FROM places) p ON place = region GROUP BY d

-- a time after the year 9999
-- error: DataError
-- says: timestamp out of range
SELECT TIMESTAMP '9999-12-31 23:59:59' + INTERVAL '1 second'

-- a series to after the year 9999
-- error: DataError
-- says: timestamp out of range
SELECT * FROM generate_series(DATE '9999-12-01', DATE '9999-12-31' + 5, INTERVAL '1 day') AS g

-- a literal of UNION that is no value of the other side's type
-- error: DataError
-- says: invalid input syntax for type integer: "all"
SELECT age, COUNT(*) FROM survey GROUP BY age UNION ALL SELECT 'all', COUNT(*) FROM survey

-- a literal of UNION that DISTINCT has made a text
-- error: TypeMismatchError
-- says: UNION types integer and text cannot be matched
SELECT 1 AS a UNION ALL SELECT DISTINCT NULL

-- literals of UNION that are a text together
-- error: TypeMismatchError
-- says: UNION types text and integer cannot be matched
SELECT NULL AS a UNION SELECT NULL UNION SELECT 1
