-- a cut at a number
-- error: CutError
-- says: the condition in WHERE cuts the bin [5, 20) of income at 7
-- at: income >=
SELECT COUNT(*) FROM survey WHERE income >= 7

-- a cut at one value
-- error: CutError
-- says: the condition in WHERE is not the same for all values in the bin [5, 20) of income
-- at: income = 5
SELECT COUNT(*) FROM survey WHERE income = 5

-- a cut by BETWEEN
-- error: CutError
-- says: the condition in WHERE cuts the bin [5, 20) of income at 10
-- at: income BET
SELECT COUNT(*) FROM survey WHERE income BETWEEN 5 AND 10

-- a cut by IN
-- error: CutError
-- says: the condition in WHERE cuts the bin [5, 20) of income at 6
-- at: income IN
SELECT COUNT(*) FROM survey WHERE income IN (5, 6)

-- a cut in an OR
-- error: CutError
-- says: the condition in WHERE cuts the bin [5, 20) of income at 7
-- at: region = '
SELECT COUNT(*) FROM survey WHERE region = 'south' OR income > 7

-- a cut in FILTER
-- error: CutError
-- says: the condition in FILTER cuts the bin [0, 5) of income at 3
-- at: income < 3
SELECT COUNT(*) FILTER (WHERE income < 3) FROM survey

-- a cut in CASE
-- error: CutError
-- says: the expression in SUM cuts the bin [0, 5) of income at 3
-- at: income < 3
SELECT SUM(CASE WHEN income < 3 THEN 1 ELSE 0 END) FROM survey

-- a cut of a month
-- error: CutError
-- says: the condition in WHERE cuts the bin [2020-02-01, 2020-03-01) of month at 2020-02-10
-- at: month >= '
SELECT COUNT(*) FROM survey WHERE month >= '2020-02-10'

-- a cut of a time
-- error: CutError
-- says: the condition in WHERE cuts the bin [2020-01-01 12:00:00, 2020-01-02 00:00:00) of seen at 2020-01-01 15:00:00
-- at: seen > '20
SELECT COUNT(*) FROM survey WHERE seen > '2020-01-01 15:00:00'

-- a cut of a day of a time
-- error: CutError
-- says: the condition in WHERE is not the same for all values in the bin [2020-01-02 00:00:00, 2020-01-04 00:00:00) of seen
-- at: seen::date
SELECT COUNT(*) FROM survey WHERE seen::date > '2020-01-02'

-- the remainder of a binned number
-- error: CutError
-- says: the condition in WHERE is not the same for all values in the bin [-10, 0) of income
-- at: income % 2
SELECT COUNT(*) FROM survey WHERE income % 2 = 0

-- groups of a binned number changed
-- error: CutError
-- says: the expression in GROUP BY is not the same for all values in the bin [-10, 0) of income
SELECT income + 1, COUNT(*) FROM survey GROUP BY income + 1

-- groups of a binned number divided
-- error: CutError
-- says: the expression in GROUP BY is not the same for all values in the bin [-10, 0) of income
-- at: income / 1
SELECT income / 10, COUNT(*) FROM survey GROUP BY 1

-- weeks of months
-- error: CutError
-- says: the expression in GROUP BY is not the same for all values in the bin [2020-01-01, 2020-02-01) of month
-- at: date_trunc
SELECT date_trunc('week', month), COUNT(*) FROM survey GROUP BY 1

-- seconds of intervals of time
-- error: NotSupportedError
-- says: seen is declared in bins: only comparisons with constants are known
-- at: seen), COU
SELECT EXTRACT(second FROM seen), COUNT(*) FROM survey GROUP BY 1

-- the sum of a binned number
-- error: NotSupportedError
-- says: SUM(income) is not known: income is declared in bins, and the cube holds no values finer than those
-- at: income) FR
SELECT SUM(income) FROM survey

-- the average of a binned number
-- error: NotSupportedError
-- says: AVG(income) is not known: income is declared in bins, and the cube holds no values finer than those
-- at: income) FR
SELECT AVG(income) FROM survey

-- the sum of a binned number changed
-- error: CutError
-- says: the expression in SUM is not the same for all values in the bin [-10, 0) of income
-- at: income * 2
SELECT SUM(income * 2) FROM survey

-- two binned columns compared
-- error: CutError
-- says: the condition in WHERE is not the same for all values in the bin [0, 5) of income
-- at: income > a
SELECT COUNT(*) FROM survey WHERE income > age

-- a cut between zero and NULL
-- error: CutError
-- says: the expression in GROUP BY cuts the bin [0, 5) of income at 3
SELECT COUNT(*) FROM survey GROUP BY CASE WHEN income < 3 THEN 0 END
