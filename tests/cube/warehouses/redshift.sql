-- Untested: nobody has run this on redshift. Its columns are of the same types as those of the file.
SELECT
  w0,
  v0,
  COUNT(*) AS n,
  COALESCE(SUM(q0), 0) AS s0
FROM (
  SELECT
    w0,
    (
      CAST(CASE WHEN unit IS NULL THEN 2 WHEN dropped = 0 AND place > 3 THEN 1 ELSE 0 END AS BIGINT) & 3
    ) * 4194304 + (
      CAST(m0 AS BIGINT) & 3
    ) * 1048576 + (
      CAST(l0 AS BIGINT) & 15
    ) * 65536 + (
      CAST(l1 AS BIGINT) & 15
    ) * 4096 + (
      CAST(l2 AS BIGINT) & 15
    ) * 256 + (
      CAST(l3 AS BIGINT) & 15
    ) * 16 + (
      CAST(l4 AS BIGINT) & 15
    ) * 1 AS v0,
    q0
  FROM (
    SELECT
      r5.*,
      ROW_NUMBER() OVER (
        PARTITION BY unit, dropped
        ORDER BY MD5(
          '0' || '|' || COALESCE(CAST(whose AS VARCHAR(MAX)), '') || '|' || COALESCE(CAST(w0 AS VARCHAR(MAX)), '') || '|' || COALESCE(CAST(q0 AS VARCHAR(MAX)), '') || '|' || COALESCE(CAST(m0 AS VARCHAR(MAX)), '') || '|' || COALESCE(CAST(copy AS VARCHAR(MAX)), '')
        )
      ) AS place
    FROM (
      SELECT
        r4.*,
        ROW_NUMBER() OVER (PARTITION BY unit, dropped, w0, q0, m0 ORDER BY w0) AS copy
      FROM (
        SELECT
          (
            CAST(c0 AS BIGINT) & 7
          ) * 1024 + (
            CAST(c1 AS BIGINT) & 15
          ) * 64 + (
            CAST(c2 AS BIGINT) & 7
          ) * 8 + (
            CAST(c3 AS BIGINT) & 7
          ) * 1 AS w0,
          q0,
          m0,
          0 AS l0,
          0 AS l1,
          0 AS l2,
          0 AS l3,
          0 AS l4,
          unit,
          whose,
          CASE
            WHEN c1 IN (-1, -2, -3) OR c2 IN (-2, -3) OR c3 IN (-1, -2, -3)
            THEN 1
            ELSE 0
          END AS dropped
        FROM (
          SELECT
            unit,
            whose,
            CASE
              WHEN z0
              THEN -1
              WHEN NOT exact0.code IS NULL
              THEN exact0.code
              WHEN COALESCE(k0 IS NULL AND d0 IS NULL, TRUE)
              THEN -3
              ELSE -2
            END AS c0,
            t.e0,
            CASE
              WHEN z1
              THEN -1
              WHEN NOT exact1.code IS NULL
              THEN exact1.code
              WHEN NOT k1 IS NULL
              THEN -4 - CASE WHEN k1 >= CAST('2021-03-15' AS DATE) THEN 1 ELSE 0 END
              WHEN d1 > 0
              THEN -5
              WHEN d1 < 0
              THEN -4
              WHEN COALESCE(k1 IS NULL AND d1 IS NULL, TRUE)
              THEN -3
              ELSE -2
            END AS c1,
            t.e1,
            CASE
              WHEN z2
              THEN -1
              WHEN NOT exact2.code IS NULL
              THEN exact2.code
              WHEN COALESCE(k2 IS NULL AND d2 IS NULL, TRUE)
              THEN -3
              ELSE -2
            END AS c2,
            t.e2,
            CASE
              WHEN z3
              THEN -1
              WHEN k3 >= CAST('0' AS DECIMAL(18, 9))
              AND k3 < CAST('10' AS DECIMAL(18, 9))
              AND k3 = FLOOR(k3)
              THEN CASE WHEN k3 >= CAST('5' AS DECIMAL(18, 9)) THEN 1 ELSE 0 END
              WHEN COALESCE(k3 IS NULL AND d3 IS NULL, TRUE)
              THEN -3
              ELSE -2
            END AS c3,
            t.e3,
            CASE
              WHEN NOT y0
              THEN CASE
                WHEN x0 <= CAST('0.00000000000' AS DECIMAL(38, 11)) OR f0 < 0
                THEN 0
                WHEN x0 >= CAST('100.00000000000' AS DECIMAL(38, 11)) OR f0 > 0
                THEN 400
                WHEN NOT x0 IS NULL
                THEN CAST((
                  CASE
                    WHEN CAST((
                      CASE
                        WHEN x0 > CAST('0.00000000000' AS DECIMAL(38, 11))
                        AND x0 < CAST('100.00000000000' AS DECIMAL(38, 11))
                        THEN x0
                      END
                    ) * 100000000000 AS DECIMAL(38, 0)) < 0
                    THEN -(
                      (
                        (
                          2 * ABS(
                            CAST((
                              CASE
                                WHEN x0 > CAST('0.00000000000' AS DECIMAL(38, 11))
                                AND x0 < CAST('100.00000000000' AS DECIMAL(38, 11))
                                THEN x0
                              END
                            ) * 100000000000 AS DECIMAL(38, 0))
                          ) + 25000000000
                        ) - (
                          2 * ABS(
                            CAST((
                              CASE
                                WHEN x0 > CAST('0.00000000000' AS DECIMAL(38, 11))
                                AND x0 < CAST('100.00000000000' AS DECIMAL(38, 11))
                                THEN x0
                              END
                            ) * 100000000000 AS DECIMAL(38, 0))
                          ) + 25000000000
                        ) % 50000000000
                      ) / 50000000000
                    )
                    ELSE (
                      (
                        (
                          2 * ABS(
                            CAST((
                              CASE
                                WHEN x0 > CAST('0.00000000000' AS DECIMAL(38, 11))
                                AND x0 < CAST('100.00000000000' AS DECIMAL(38, 11))
                                THEN x0
                              END
                            ) * 100000000000 AS DECIMAL(38, 0))
                          ) + 25000000000
                        ) - (
                          2 * ABS(
                            CAST((
                              CASE
                                WHEN x0 > CAST('0.00000000000' AS DECIMAL(38, 11))
                                AND x0 < CAST('100.00000000000' AS DECIMAL(38, 11))
                                THEN x0
                              END
                            ) * 100000000000 AS DECIMAL(38, 0))
                          ) + 25000000000
                        ) % 50000000000
                      ) / 50000000000
                    )
                  END
                ) AS BIGINT)
              END
            END AS q0,
            CASE
              WHEN y0
              THEN 3
              WHEN x0 IS NULL AND f0 IS NULL
              THEN 2
              WHEN x0 >= CAST('0.00000000000' AS DECIMAL(38, 11))
              AND x0 <= CAST('100.00000000000' AS DECIMAL(38, 11))
              THEN 0
              ELSE 1
            END AS m0,
            t.e4
          FROM (
            SELECT
              r2.*,
              CAST(NULL AS INTEGER) AS d0,
              COALESCE(e0 IS NULL, FALSE) AS z0,
              CAST(NULL AS INTEGER) AS d1,
              CASE WHEN k1 IS NULL THEN COALESCE(e1 IS NULL, FALSE) ELSE FALSE END AS z1,
              CAST(NULL AS INTEGER) AS d2,
              CASE WHEN k2 IS NULL THEN COALESCE(e2 IS NULL, FALSE) ELSE FALSE END AS z2,
              CASE
                WHEN k3 IS NULL AND NOT e3 IS NULL AND NOT FALSE
                THEN CASE WHEN e3 < 0 THEN -1 ELSE 1 END
              END AS d3,
              CASE WHEN k3 IS NULL THEN COALESCE(e3 IS NULL OR FALSE, FALSE) ELSE FALSE END AS z3,
              CASE
                WHEN x0 IS NULL AND NOT e4 IS NULL AND NOT FALSE
                THEN CASE WHEN e4 < 0 THEN -1 ELSE 1 END
              END AS f0,
              CASE WHEN x0 IS NULL THEN COALESCE(e4 IS NULL OR FALSE, FALSE) ELSE FALSE END AS y0
            FROM (
              SELECT
                unit,
                whose,
                e0,
                COLLATE((
                  CAST(CAST(e0 AS VARCHAR(MAX)) AS VARCHAR(MAX)) || '|'
                ), 'case_sensitive') AS k0,
                e1,
                CAST(e1 AS DATE) AS k1,
                e2,
                CAST(e2 AS BOOLEAN) AS k2,
                e3,
                TRY_CAST(CAST(CAST(e3 AS DECIMAL(8, 2)) AS VARCHAR(MAX)) AS DECIMAL(18, 9)) AS k3,
                e4,
                TRY_CAST(CAST(CAST(e4 AS DECIMAL(8, 2)) AS VARCHAR(MAX)) AS DECIMAL(38, 11)) AS x0
              FROM (
                SELECT
                  (
                    "town"
                  ) AS e0,
                  (
                    "day"
                  ) AS e1,
                  (
                    "new"
                  ) AS e2,
                  (
                    "fee"
                  ) AS e3,
                  (
                    "fee"
                  ) AS e4,
                  COLLATE((
                    CAST("who" AS VARCHAR(MAX)) || '|'
                  ), 'case_sensitive') AS unit,
                  CAST("who" AS VARCHAR(MAX)) AS whose
                FROM "data" AS a_record
              ) AS r1
            ) AS r2
          ) AS t
          LEFT JOIN (
            SELECT
              COLLATE((
                CAST('a' AS VARCHAR(MAX)) || '|'
              ), 'case_sensitive') AS v,
              0 AS code
            UNION ALL
            SELECT
              COLLATE((
                CAST('b\'s' AS VARCHAR(MAX)) || '|'
              ), 'case_sensitive') AS v,
              1 AS code
          ) AS exact0
            ON exact0.v = t.k0
          LEFT JOIN (
            SELECT
              CAST('2021-03-14' AS DATE) AS v,
              0 AS code
            UNION ALL
            SELECT
              CAST('2021-03-15' AS DATE) AS v,
              1 AS code
          ) AS exact1
            ON exact1.v = t.k1
          LEFT JOIN (
            SELECT
              CAST('false' AS BOOLEAN) AS v,
              0 AS code
            UNION ALL
            SELECT
              CAST('true' AS BOOLEAN) AS v,
              1 AS code
          ) AS exact2
            ON exact2.v = t.k2
        ) AS r3
      ) AS r4
    ) AS r5
  ) AS r6
) AS r7
GROUP BY
  w0,
  v0
