-- half_width zero
-- error: UtilityError
-- says: half_width must be more than 0
-- at: (0, 0.05)
SELECT COUNT(*) FROM survey WITH UTILITY (0, 0.05)

-- a negative half_width
-- error: UtilityError
-- says: half_width must be more than 0
-- at: (-5, 0.05)
SELECT COUNT(*) FROM survey WITH UTILITY (-5, 0.05)

-- delta zero
-- error: UtilityError
-- says: delta must be between 0 and 1
-- at: (50, 0)
SELECT COUNT(*) FROM survey WITH UTILITY (50, 0)

-- delta one
-- error: UtilityError
-- says: delta must be between 0 and 1
-- at: (50, 1)
SELECT COUNT(*) FROM survey WITH UTILITY (50, 1)

-- delta in per cent
-- error: UtilityError
-- says: delta must be between 0 and 1
-- at: (50, 5)
SELECT COUNT(*) FROM survey WITH UTILITY (50, 5)

-- no delta
-- error: SQLSyntaxError
-- says: syntax error at or near ")": expecting ', delta)' in WITH UTILITY
SELECT COUNT(*) FROM survey WITH UTILITY (50)

-- a delta that is text
-- error: UtilityError
-- says: a utility takes plain numbers: WITH UTILITY (50, 0.05)
-- at: (50, 'x')
SELECT COUNT(*) FROM survey WITH UTILITY (50, 'x')

-- no brackets
-- error: SQLSyntaxError
-- says: syntax error at or near ",": expecting (
-- at: , 0.05
SELECT COUNT(*) FROM survey WITH UTILITY 50, 0.05

-- two clauses
-- error: SQLSyntaxError
-- says: syntax error at or near "UTILITY": found multiple 'WITH UTILITY' clauses
SELECT COUNT(*) FROM survey WITH UTILITY (50, 0.05) WITH UTILITY (50, 0.05)

-- two requests for all
-- error: UtilityError
-- says: WITH UTILITY has two requests for all numbers
-- at: (5, 0.05)
SELECT COUNT(*) AS n FROM survey WITH UTILITY (50, 0.05), (5, 0.05)

-- a column that is not in the list
-- error: UndefinedColumnError
-- says: WITH UTILITY names the column "totl", which is not in the select list
-- at: (50, 0.05)
SELECT COUNT(*) AS total FROM survey WITH UTILITY (50, 0.05), totl (5, 0.05)

-- a hint out of range
-- error: UtilityError
-- says: delta must be between 0 and 1
SELECT /*+ UTILITY(50, 5) */ COUNT(*) FROM survey

-- a hint of three numbers
-- error: UtilityError
-- says: a utility reads: half_width, delta
SELECT /*+ UTILITY(50, 5, 1) */ COUNT(*) FROM survey
