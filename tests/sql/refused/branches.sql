-- rows without their duplicates
-- error: NotSupportedError
-- says: protected rows are put together by UNION ALL, and with protected rows only
SELECT COUNT(*) FROM (SELECT age FROM survey UNION SELECT age FROM survey) x

-- rows that are in both
-- error: NotSupportedError
-- says: protected rows are put together by UNION ALL, and with protected rows only
SELECT COUNT(*) FROM (SELECT age FROM survey INTERSECT SELECT age FROM survey) x

-- rows that are in one
-- error: NotSupportedError
-- says: protected rows are put together by UNION ALL, and with protected rows only
SELECT COUNT(*) FROM (SELECT age FROM survey EXCEPT ALL SELECT age FROM survey) x

-- rows with public ones
-- error: NotSupportedError
-- says: protected rows are put together by UNION ALL, and with protected rows only
SELECT COUNT(*) FROM (SELECT age FROM survey UNION ALL SELECT people FROM places) x

-- rows with a result
-- error: NotSupportedError
-- says: protected rows are put together by UNION ALL, and with protected rows only
SELECT COUNT(*) FROM (SELECT COUNT(*) FROM survey UNION ALL SELECT age FROM survey) x

-- grouped by what differs
-- error: NotSupportedError
-- says: a record may have several values of this column
SELECT COUNT(*), SUM(x.x) FROM (SELECT age AS x FROM survey UNION ALL SELECT children FROM survey) x GROUP BY x.x

-- grouped by the part
-- error: NotSupportedError
-- says: a record may have several values of this column
SELECT part, COUNT(*) FROM (SELECT 'a' AS part FROM survey UNION ALL SELECT 'b' FROM survey) x GROUP BY part

-- a maximum of what differs
-- error: NotSupportedError
-- says: a record may have several values of this column
SELECT MAX(age) FROM (SELECT age FROM survey UNION ALL SELECT children FROM survey) x

-- more columns in one part
-- error: SQLSyntaxError
-- says: each UNION query must have the same number of columns
SELECT COUNT(*) FROM (SELECT age FROM survey UNION ALL SELECT age, region FROM survey) x

-- types that do not go together
-- error: TypeMismatchError
-- says: UNION types integer and text cannot be matched
SELECT COUNT(*) FROM (SELECT age FROM survey UNION ALL SELECT region FROM survey) x

-- LIMIT of rows
-- error: NotSupportedError
-- says: LIMIT and OFFSET choose among results
SELECT COUNT(*) FROM (SELECT age FROM survey UNION ALL SELECT age FROM survey LIMIT 5) x

-- LIMIT of rows in brackets
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown
SELECT COUNT(*) FROM ((SELECT age FROM survey) LIMIT 5) x

-- rows that are shown
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown
SELECT * FROM (SELECT age FROM survey UNION ALL SELECT age FROM survey) x
