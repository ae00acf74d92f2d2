-- nested aggregates
-- error: GroupingError
-- says: aggregate function calls cannot be nested
-- at: COUNT(*))
SELECT SUM(COUNT(*)) FROM survey

-- an aggregate in WHERE
-- error: GroupingError
-- says: aggregate functions are not allowed in WHERE
-- at: COUNT(*) >
SELECT COUNT(*) FROM survey WHERE COUNT(*) > 1

-- an aggregate in GROUP BY
-- error: GroupingError
-- says: aggregate functions are not allowed in GROUP BY
SELECT COUNT(*) FROM survey GROUP BY COUNT(*)

-- an aggregate in GROUP BY by its ordinal
-- error: GroupingError
-- says: aggregate functions are not allowed in GROUP BY
-- at: COUNT(*) F
SELECT COUNT(*) FROM survey GROUP BY 1

-- a list of values
-- error: NotSupportedError
-- says: ARRAY_AGG(age) is not a function of counts and sums that is known
-- at: array_agg(
SELECT array_agg(age) FROM survey

-- a text of values
-- error: NotSupportedError
-- says: STRING_AGG(region, ',') is not a function of counts and sums that is known
-- at: region, ',
SELECT string_agg(region, ',') FROM survey

-- whether any number is true
-- error: NotSupportedError
-- says: bool_or takes a condition, not type integer
SELECT bool_or(age) FROM survey

-- a correlation
-- error: NotSupportedError
-- says: CORR(age, children) is not a function of counts and sums that is known
-- at: CORR(age,
SELECT CORR(age, children) FROM survey

-- a sum of different values
-- error: NotSupportedError
-- says: SUM(DISTINCT age) is not a function of counts and sums that is known
-- at: SUM(DISTIN
SELECT SUM(DISTINCT age) FROM survey

-- different pairs
-- error: NotSupportedError
-- says: DISTINCT of several expressions is not supported
-- at: age, regio
SELECT COUNT(DISTINCT age, region) FROM survey

-- two arguments of COUNT
-- error: ProgrammingError
-- says: COUNT(age, region): COUNT takes one argument
-- at: COUNT(age,
SELECT COUNT(age, region) FROM survey

-- the largest with several grouping sets
-- error: NotSupportedError
-- says: MAX(age) is not known with several grouping sets
-- at: MAX(age) F
SELECT region, MAX(age) FROM survey GROUP BY ROLLUP (region)

-- a percentile above one
-- error: TypeMismatchError
-- says: a percentile takes a number between 0 and 1
-- at: 1.5) WITHI
SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY age) FROM survey

-- a claim on nothing
-- error: NotSupportedError
-- says: PROBABILITY takes a claim on one number: a comparison with a constant, or BETWEEN
-- at: COUNT(*))
SELECT PROBABILITY(COUNT(*)) FROM survey

-- a claim of inequality
-- error: NotSupportedError
-- says: PROBABILITY takes a claim on one number: a comparison with a constant, or BETWEEN
-- at: AVG(age) <
SELECT PROBABILITY(AVG(age) <> 3) FROM survey

-- the interval of a column
-- error: GroupingError
-- says: column "age" must appear in the GROUP BY clause or be used in an aggregate function
-- at: age) FROM
SELECT CREDIBLE_LOW(age) FROM survey

-- the interval of a product
-- error: NotSupportedError
-- says: this takes one number of the aggregation: a COUNT, SUM or AVG, or a linear combination of COUNTs and SUMs
-- at: COUNT(*) *
SELECT CREDIBLE_LOW(COUNT(*) * COUNT(*)) FROM survey

-- the interval of a result
-- error: UndefinedFunctionError
-- says: the aggregate credible_low is not among those the proxy knows here
-- at: CREDIBLE_L
SELECT CREDIBLE_LOW(n) FROM (SELECT COUNT(*) AS n FROM survey) t

-- a pair of one
-- error: ProgrammingError
-- says: REGR_COUNT takes two arguments, without DISTINCT
-- at: REGR_COUNT
SELECT REGR_COUNT(age) FROM survey

-- different pairs of numbers
-- error: ProgrammingError
-- says: REGR_COUNT takes two arguments, without DISTINCT
-- at: REGR_COUNT
SELECT REGR_COUNT(DISTINCT age, children) FROM survey

-- a pair with a text
-- error: TypeMismatchError
-- says: REGR_COUNT needs a number, not type text
-- at: region, a
SELECT REGR_COUNT(region, age) FROM survey

-- a pair with a text, of results
-- error: UndefinedFunctionError
-- says: function regr_count(text) does not exist
SELECT REGR_COUNT(n, region) FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t
