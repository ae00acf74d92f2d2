-- a misspelled keyword
-- error: SQLSyntaxError
-- says: syntax error at or near "survey"
-- at: survey
SELECT COUNT(*) FRM survey

-- an open bracket
-- error: SQLSyntaxError
-- says: syntax error at or near "FROM": expecting )
-- at: FROM surve
SELECT COUNT(* FROM survey

-- a condition that is missing
-- error: SQLSyntaxError
-- says: syntax error at or near "WHERE": the expression is incomplete
-- at: WHERE
SELECT COUNT(*) FROM survey WHERE

-- half of BETWEEN
-- error: SQLSyntaxError
-- says: syntax error at or near "1": the expression is incomplete
-- at: 1
SELECT COUNT(*) FROM survey WHERE children BETWEEN 1

-- an open quote
-- error: SQLSyntaxError
-- says: the text ends inside a quotation or a comment
-- at: 'south
SELECT COUNT(*) FROM survey WHERE region = 'south

-- an open quote behind quotes that end
-- error: SQLSyntaxError
-- says: the text ends inside a quotation or a comment
-- at: 'it''s
SELECT COUNT(*) FROM survey WHERE "region" IN ('so''uth', E'\'', $$'$$) /* ' */ OR region = 'it''s

-- an open comment
-- error: SQLSyntaxError
-- says: the text ends inside a quotation or a comment
-- at: /* FROM
SELECT COUNT(*) /* FROM survey

-- an open CASE
-- error: SQLSyntaxError
-- says: syntax error at or near "2": expected END after CASE
-- at: 2
SELECT CASE WHEN 1 = 1 THEN 2

-- a comma too many
-- error: SQLSyntaxError
-- says: syntax error after ",": the expression is incomplete
-- at: FROM
SELECT region, FROM survey

-- two statements
-- error: SQLSyntaxError
-- says: expected one statement
SELECT COUNT(*) FROM survey; SELECT 1

-- SET without a value
-- error: SQLSyntaxError
-- says: SET takes the name of a setting
-- at: SET privac
SET privacy.utility

-- SHOW without a name
-- error: SQLSyntaxError
-- says: SHOW takes the name of a setting
-- at: SHOW
SHOW

-- a name that has an empty part
-- error: SQLSyntaxError
-- says: syntax error at or near "."
-- at: ."survey"
SELECT COUNT(*) FROM "public". ."survey"

-- a name that begins with a dot
-- error: SQLSyntaxError
-- says: syntax error at or near "."
-- at: .survey
SELECT COUNT(*) FROM .survey

-- a number with underscores
-- error: SQLSyntaxError
-- says: trailing junk after numeric literal at or near "1_000"
-- at: 1_000
SELECT COUNT(*), 1_000 FROM survey

-- an octal number
-- error: SQLSyntaxError
-- says: write the number in decimal digits
-- at: 0o7
SELECT 0o7

-- a word right after a number
-- error: SQLSyntaxError
-- says: trailing junk after numeric literal at or near "2years"
-- at: 2years
SELECT 1e1+2years
