-- U&
-- error: NotSupportedError
-- says: U&'...' is not supported in an expression
SELECT COUNT(*) FROM survey WHERE region = U&'n\006frth'

-- a bit string
-- error: NotSupportedError
-- says: a bit string, B'...', is not supported in an expression
SELECT COUNT(*) FROM survey WHERE age = B'101'

-- an escaped NUL
-- error: DataError
-- says: an escape in E'...' makes no character
-- at: E'a
SELECT COUNT(*) FROM survey WHERE region = E'a\0'

-- half a surrogate
-- error: DataError
-- says: an escape in E'...' makes no character
-- at: E'\ud
SELECT COUNT(*) FROM survey WHERE region = E'\ud83d'

-- half a code
-- error: DataError
-- says: an escape in E'...' makes no character
-- at: E'\u1
SELECT COUNT(*) FROM survey WHERE region = E'\u12'

-- bytes that are no text
-- error: DataError
-- says: an escape in E'...' makes no character
-- at: E'\x
SELECT COUNT(*) FROM survey WHERE region = E'\xff'

-- a character past the last
-- error: DataError
-- says: an escape in E'...' makes no character
-- at: E'\U
SELECT COUNT(*) FROM survey WHERE region = E'\UFFFFFFFF'

-- an escaped text that does not end
-- error: SQLSyntaxError
-- says: the text ends inside a quotation
SELECT COUNT(*) FROM survey WHERE region = E'a\'

-- a dollar quotation that does not end
-- error: SQLSyntaxError
-- says: the text ends inside a quotation
SELECT COUNT(*) FROM survey WHERE region = $a$north$b$

-- a parameter that has no value
-- error: NotSupportedError
-- says: a parameter without a value is not supported in an expression
SELECT COUNT(*) FROM survey WHERE age = $1

-- EXPLAIN UTILITY points into its own text
-- error: UndefinedColumnError
-- says: column "agee" does not exist
-- at: agee
EXPLAIN UTILITY SELECT COUNT(*) FROM survey WHERE agee = 1

-- EXPLAIN UTILITY of what does not parse
-- error: SQLSyntaxError
-- says: syntax error at or near "survey"
-- at: survey
/* plan */ EXPLAIN
  UTILITY SELECT COUNT(*) FRM survey
