-- ANY of what is no array
-- error: DataError
-- says: malformed array literal: "1,2"
-- at: '1,2'
SELECT COUNT(*) FROM survey WHERE age = ANY('1,2')

-- ANY of an array that does not end
-- error: DataError
-- says: malformed array literal
-- at: '{1,2'
SELECT COUNT(*) FROM survey WHERE age = ANY('{1,2')

-- ANY of an element that is empty
-- error: DataError
-- says: malformed array literal
-- at: '{1,,2}'
SELECT COUNT(*) FROM survey WHERE age = ANY('{1,,2}')

-- ANY of an element that is left out
-- error: DataError
-- says: malformed array literal
-- at: '{1,}'
SELECT COUNT(*) FROM survey WHERE age = ANY('{1,}')

-- ANY of arrays of arrays
-- error: DataError
-- says: malformed array literal
-- at: '{{1},{2}}'
SELECT COUNT(*) FROM survey WHERE age = ANY('{{1},{2}}')

-- ANY of an element of another type
-- error: DataError
-- says: invalid input syntax for type integer: "x"
-- at: age = 
SELECT COUNT(*) FROM survey WHERE age = ANY('{1,x}')

-- ANY of a number
-- error: NotSupportedError
-- says: ANY and ALL take a list
-- at: 1)
SELECT COUNT(*) FROM survey WHERE age = ANY(1)

-- ANY of an array that a query makes
-- error: NotSupportedError
-- says: ANY and ALL take a list
SELECT COUNT(*) FROM survey WHERE region = ANY(ARRAY(SELECT place FROM places))

-- less than some of a query
-- error: NotSupportedError
-- says: with = ANY or <> ALL a subquery
SELECT COUNT(*) FROM survey WHERE age < ANY(SELECT people FROM places)

-- ANY of protected rows
-- error: NotSupportedError
-- says: the rows of a protected dataset are not shown
SELECT COUNT(*) FROM survey WHERE age = ANY(SELECT age FROM survey)

-- ANY of a column that is not there
-- error: UndefinedColumnError
-- says: column "agee" does not exist
-- at: agee
SELECT COUNT(*) FROM survey WHERE agee = ANY('{1}')

-- an array as a value
-- error: NotSupportedError
-- says: ARRAY is not supported in an expression
-- at: 1, 2
SELECT ARRAY[1, 2], COUNT(*) FROM survey

-- an array literal in IN
-- error: DataError
-- says: invalid input syntax for type integer: "{1,2}"
-- at: age IN
SELECT COUNT(*) FROM survey WHERE age IN ('{1,2}')

-- a negative LIMIT in quotes
-- error: TypeMismatchError
-- says: LIMIT takes a whole number that is not negative
-- at: '-1'
SELECT COUNT(*) FROM survey LIMIT '-1'

-- a LIMIT that is no whole number
-- error: TypeMismatchError
-- says: LIMIT takes a whole number that is not negative
-- at: 1.5
SELECT COUNT(*) FROM survey LIMIT 1.5

-- an OFFSET that is computed
-- error: TypeMismatchError
-- says: OFFSET takes a whole number that is not negative
-- at: 1 + 1
SELECT COUNT(*) FROM survey OFFSET 1 + 1

-- FETCH WITH TIES
-- error: NotSupportedError
-- says: LIMIT takes a number of rows
SELECT region, COUNT(*) FROM survey GROUP BY region ORDER BY 2 FETCH FIRST 1 ROWS WITH TIES

-- ALL of nothing at all
-- error: NotSupportedError
-- says: ANY and ALL take a list
SELECT COUNT(*) FROM survey WHERE age = ALL()
