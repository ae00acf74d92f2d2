-- a measure compared
-- error: NotSupportedError
-- says: wage is a measure: it can be summed, averaged and counted, and nothing else
-- at: wage > 100
SELECT COUNT(*) FROM survey WHERE wage > 100

-- a measure in FILTER
-- error: NotSupportedError
-- says: wage is a measure: it can be summed, averaged and counted, and nothing else
-- at: wage > 100
SELECT COUNT(*) FILTER (WHERE wage > 100) FROM survey

-- a measure's NULL
-- error: NotSupportedError
-- says: bonus is a measure: it can be summed, averaged and counted, and nothing else
-- at: bonus IS N
SELECT COUNT(*) FROM survey WHERE bonus IS NULL

-- groups of a measure
-- error: NotSupportedError
-- says: wage is a measure: it can be summed, averaged and counted, and nothing else
-- at: wage
SELECT COUNT(*) FROM survey GROUP BY wage

-- groups of an expression of a measure
-- error: NotSupportedError
-- says: wage is a measure: it can be summed, averaged and counted, and nothing else
-- at: wage / 100
SELECT COUNT(*) FROM survey GROUP BY wage / 100

-- the largest of a measure
-- error: NotSupportedError
-- says: MAX(wage) needs single values of a measure, and the cube has only its sums
-- at: MAX(wage)
SELECT MAX(wage) FROM survey

-- the median of a measure
-- error: NotSupportedError
-- says: PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY wage) needs single values of a measure, and the cube has only its sums
-- at: MEDIAN(wag
SELECT MEDIAN(wage), COUNT(*) FROM survey

-- the different values of a measure
-- error: NotSupportedError
-- says: COUNT(DISTINCT wage) needs single values of a measure, and the cube has only its sums
-- at: COUNT(DIST
SELECT COUNT(DISTINCT wage) FROM survey

-- the variance of a measure
-- error: NotSupportedError
-- says: VAR_SAMP(wage) needs single values of a measure, and the cube has only its sums
-- at: VARIANCE(w
SELECT VARIANCE(wage) FROM survey

-- the square of a measure
-- error: NotSupportedError
-- says: this is not a linear function of the measure wage that the cube can add up
-- at: wage * wag
SELECT SUM(wage * wage) FROM survey

-- the product of two measures
-- error: NotSupportedError
-- says: this is not a linear function of the measure wage that the cube can add up
-- at: wage * bon
SELECT SUM(wage * bonus) FROM survey

-- the sum of two measures that may be NULL
-- error: NotSupportedError
-- says: this is not a linear function of the measure wage that the cube can add up
-- at: wage + bon
SELECT SUM(wage + bonus) FROM survey

-- the root of a measure
-- error: NotSupportedError
-- says: this is not a linear function of the measure wage that the cube can add up
-- at: SQRT(wage)
SELECT SUM(SQRT(wage)) FROM survey

-- a function of a measure
-- error: NotSupportedError
-- says: this is not a linear function of the measure wage that the cube can add up
-- at: ROUND(wage
SELECT SUM(ROUND(wage)) FROM survey

-- a condition on a measure
-- error: NotSupportedError
-- says: a measure cannot be compared: its single values are not in the cube
-- at: wage > 100
SELECT SUM(CASE WHEN wage > 100 THEN 1 ELSE 0 END) FROM survey

-- a constant over a measure
-- error: NotSupportedError
-- says: this is not a linear function of the measure wage that the cube can add up
-- at: 100 / wage
SELECT SUM(100 / wage) FROM survey

-- a measure as text
-- error: NotSupportedError
-- says: wage is a measure: it can be summed, averaged and counted, and nothing else
-- at: wage::text
SELECT COUNT(*) FROM survey WHERE wage::text = '5'

-- a pair of measures
-- error: NotSupportedError
-- says: REGR_COUNT of two measures is not known: the cube has the COUNT of each alone
-- at: bonus, wage
SELECT REGR_COUNT(bonus, wage) FROM survey
