-- an unknown column
-- error: UndefinedColumnError
-- says: did you mean region?
-- at: regio
SELECT COUNT(*) FROM survey WHERE regio = 'south'
