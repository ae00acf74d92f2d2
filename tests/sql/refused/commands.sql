-- INSERT
-- error: NotSupportedError
-- says: INSERT is not supported: the proxy answers SELECT, SHOW and SET
-- at: INSERT INT
INSERT INTO survey VALUES (1)

-- UPDATE
-- error: NotSupportedError
-- says: UPDATE is not supported: the proxy answers SELECT, SHOW and SET
-- at: UPDATE sur
UPDATE survey SET age = 1

-- DELETE
-- error: NotSupportedError
-- says: DELETE is not supported: the proxy answers SELECT, SHOW and SET
-- at: DELETE FRO
DELETE FROM survey

-- CREATE
-- error: NotSupportedError
-- says: CREATE is not supported: the proxy answers SELECT, SHOW and SET
-- at: CREATE TAB
CREATE TABLE x AS SELECT 1

-- DROP
-- error: NotSupportedError
-- says: DROP is not supported: the proxy answers SELECT, SHOW and SET
-- at: DROP TABLE
DROP TABLE survey

-- COPY
-- error: NotSupportedError
-- says: COPY is not supported: the proxy answers SELECT, SHOW and SET
-- at: COPY surve
COPY survey TO 'x.csv'

-- ATTACH
-- error: NotSupportedError
-- says: ATTACH is not supported: the proxy answers SELECT, SHOW and SET
-- at: ATTACH 'x.
ATTACH 'x.db'

-- INSTALL
-- error: NotSupportedError
-- says: INSTALL is not supported: the proxy answers SELECT, SHOW and SET
-- at: INSTALL ht
INSTALL httpfs

-- LOAD
-- error: NotSupportedError
-- says: LOAD is not supported: the proxy answers SELECT, SHOW and SET
-- at: LOAD httpf
LOAD httpfs

-- PRAGMA
-- error: NotSupportedError
-- says: PRAGMA is not supported: the proxy answers SELECT, SHOW and SET
-- at: PRAGMA dat
PRAGMA database_list

-- CALL
-- error: NotSupportedError
-- says: CALL is not supported: the proxy answers SELECT, SHOW and SET
-- at: CALL pragm
CALL pragma_version()

-- GRANT
-- error: NotSupportedError
-- says: GRANT is not supported: the proxy answers SELECT, SHOW and SET
-- at: GRANT ALL
GRANT ALL ON survey TO bob

-- VACUUM
-- error: NotSupportedError
-- says: VACUUM is not supported: the proxy answers SELECT, SHOW and SET
-- at: VACUUM
VACUUM

-- DO
-- error: NotSupportedError
-- says: DO is not supported: the proxy answers SELECT, SHOW and SET
-- at: DO $$ BEGI
DO $$ BEGIN END $$

-- an INSERT in WITH
-- error: NotSupportedError
-- says: INSERT is not supported here
-- at: survey VAL
WITH x AS (INSERT INTO survey VALUES (1) RETURNING *) SELECT * FROM x

-- EXPLAIN UTILITY of SET
-- error: NotSupportedError
-- says: EXPLAIN UTILITY takes a SELECT
EXPLAIN UTILITY SET a = 1
