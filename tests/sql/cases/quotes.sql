-- an escaped text without escapes
SELECT COUNT(*) FROM survey WHERE region = E'north'

-- escaped quotes
SELECT COUNT(*) FROM survey WHERE "Job Title" = E'O\'Neil''s'

-- escaped characters
SELECT COUNT(*) FROM survey WHERE "Job Title" = E'\u00c4rz\x74\151n'

-- escaped bytes
SELECT COUNT(*) FROM survey WHERE "Job Title" = e'\xc3\x84rztin'

-- all escapes
SELECT E'a\\b\tc\nd\re\bf\fg\vh\q\'' AS a, COUNT(*) FROM survey

-- a character outside of the first plane
SELECT E'\U0001F600' AS a, E'\ud83d\ude00' AS b, COUNT(*) FROM survey

-- an escaped pattern
SELECT COUNT(*) FROM survey WHERE "Job Title" LIKE E'50\\%\\_%'

-- a plain backslash
SELECT 'a\nb' AS a, COUNT(*) FROM survey

-- a dollar quotation
SELECT COUNT(*) FROM survey WHERE "Job Title" = $$O'Neil's$$

-- a dollar quotation with a tag
SELECT $tag$it's $$5 \n$tag$ AS a, COUNT(*) FROM survey WHERE region = $r$north$r$

-- a dollar quotation for a number
SELECT COUNT(*) FROM survey WHERE age = $$12$$ AND joined < $d$2020-02-01$d$

-- an escaped text as a key
SELECT CASE WHEN age > 20 THEN E'o\'ld' ELSE $$young$$ END AS k, COUNT(*) FROM survey GROUP BY 1

-- a text in two pieces
SELECT COUNT(*) FROM survey WHERE region = 'nor'
'th'

-- a national text
SELECT COUNT(*) FROM survey WHERE region = N'north'
