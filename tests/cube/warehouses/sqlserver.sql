-- Untested: nobody has run this on sqlserver. Its columns are of the same types as those of the file.
SELECT
  w0,
  v0,
  COUNT_BIG(*) AS n,
  COALESCE(SUM(CAST(q0 AS NUMERIC(38, 0))), 0) AS s0
FROM (
  SELECT
    w0 AS w0,
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
    q0 AS q0
  FROM (
    SELECT
      r5.*,
      ROW_NUMBER() OVER (
        PARTITION BY unit, dropped
        ORDER BY CASE WHEN HASHBYTES(
          'MD5',
          '0' + '|' + COALESCE(CAST(whose AS NVARCHAR(MAX)), '') + '|' + COALESCE(CAST(w0 AS NVARCHAR(MAX)), '') + '|' + COALESCE(CAST(q0 AS NVARCHAR(MAX)), '') + '|' + COALESCE(CAST(m0 AS NVARCHAR(MAX)), '') + '|' + COALESCE(CAST(copy AS NVARCHAR(MAX)), '')
        ) IS NULL THEN 1 ELSE 0 END, HASHBYTES(
          'MD5',
          '0' + '|' + COALESCE(CAST(whose AS NVARCHAR(MAX)), '') + '|' + COALESCE(CAST(w0 AS NVARCHAR(MAX)), '') + '|' + COALESCE(CAST(q0 AS NVARCHAR(MAX)), '') + '|' + COALESCE(CAST(m0 AS NVARCHAR(MAX)), '') + '|' + COALESCE(CAST(copy AS NVARCHAR(MAX)), '')
        )
      ) AS place
    FROM (
      SELECT
        r4.*,
        ROW_NUMBER() OVER (
          PARTITION BY unit, dropped, w0, q0, m0
          ORDER BY CASE WHEN w0 IS NULL THEN 1 ELSE 0 END, w0
        ) AS copy
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
          q0 AS q0,
          m0 AS m0,
          0 AS l0,
          0 AS l1,
          0 AS l2,
          0 AS l3,
          0 AS l4,
          unit AS unit,
          whose AS whose,
          CASE
            WHEN c1 IN (-1, -2, -3) OR c2 IN (-2, -3) OR c3 IN (-1, -2, -3)
            THEN 1
            ELSE 0
          END AS dropped
        FROM (
          SELECT
            unit AS unit,
            whose AS whose,
            CASE
              WHEN z0 = 1
              THEN -1
              WHEN NOT exact0.code IS NULL
              THEN exact0.code
              WHEN COALESCE(CASE WHEN k0 IS NULL AND d0 IS NULL THEN 1 ELSE 0 END, 1) = 1
              THEN -3
              ELSE -2
            END AS c0,
            t.e0 AS e0,
            CASE
              WHEN z1 = 1
              THEN -1
              WHEN NOT exact1.code IS NULL
              THEN exact1.code
              WHEN NOT k1 IS NULL
              THEN -4 - CASE WHEN k1 >= CAST('2021-03-15' AS DATE) THEN 1 ELSE 0 END
              WHEN d1 > 0
              THEN -5
              WHEN d1 < 0
              THEN -4
              WHEN COALESCE(CASE WHEN k1 IS NULL AND d1 IS NULL THEN 1 ELSE 0 END, 1) = 1
              THEN -3
              ELSE -2
            END AS c1,
            t.e1 AS e1,
            CASE
              WHEN z2 = 1
              THEN -1
              WHEN NOT exact2.code IS NULL
              THEN exact2.code
              WHEN COALESCE(CASE WHEN k2 IS NULL AND d2 IS NULL THEN 1 ELSE 0 END, 1) = 1
              THEN -3
              ELSE -2
            END AS c2,
            t.e2 AS e2,
            CASE
              WHEN z3 = 1
              THEN -1
              WHEN k3 >= CAST('0' AS NUMERIC(18, 9))
              AND k3 < CAST('10' AS NUMERIC(18, 9))
              AND k3 = FLOOR(k3)
              THEN CASE WHEN k3 >= CAST('5' AS NUMERIC(18, 9)) THEN 1 ELSE 0 END
              WHEN COALESCE(CASE WHEN k3 IS NULL AND d3 IS NULL THEN 1 ELSE 0 END, 1) = 1
              THEN -3
              ELSE -2
            END AS c3,
            t.e3 AS e3,
            CASE
              WHEN NOT y0 = 1
              THEN CASE
                WHEN x0 <= CAST('0.00000000000' AS NUMERIC(38, 11)) OR f0 < 0
                THEN 0
                WHEN x0 >= CAST('100.00000000000' AS NUMERIC(38, 11)) OR f0 > 0
                THEN 400
                WHEN NOT x0 IS NULL
                THEN CAST((
                  CASE
                    WHEN CAST((
                      CASE
                        WHEN x0 > CAST('0.00000000000' AS NUMERIC(38, 11))
                        AND x0 < CAST('100.00000000000' AS NUMERIC(38, 11))
                        THEN x0
                      END
                    ) * 100000000000 AS NUMERIC(38, 0)) < 0
                    THEN -(
                      (
                        (
                          2 * ABS(
                            CAST((
                              CASE
                                WHEN x0 > CAST('0.00000000000' AS NUMERIC(38, 11))
                                AND x0 < CAST('100.00000000000' AS NUMERIC(38, 11))
                                THEN x0
                              END
                            ) * 100000000000 AS NUMERIC(38, 0))
                          ) + 25000000000
                        ) - (
                          2 * ABS(
                            CAST((
                              CASE
                                WHEN x0 > CAST('0.00000000000' AS NUMERIC(38, 11))
                                AND x0 < CAST('100.00000000000' AS NUMERIC(38, 11))
                                THEN x0
                              END
                            ) * 100000000000 AS NUMERIC(38, 0))
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
                                WHEN x0 > CAST('0.00000000000' AS NUMERIC(38, 11))
                                AND x0 < CAST('100.00000000000' AS NUMERIC(38, 11))
                                THEN x0
                              END
                            ) * 100000000000 AS NUMERIC(38, 0))
                          ) + 25000000000
                        ) - (
                          2 * ABS(
                            CAST((
                              CASE
                                WHEN x0 > CAST('0.00000000000' AS NUMERIC(38, 11))
                                AND x0 < CAST('100.00000000000' AS NUMERIC(38, 11))
                                THEN x0
                              END
                            ) * 100000000000 AS NUMERIC(38, 0))
                          ) + 25000000000
                        ) % 50000000000
                      ) / 50000000000
                    )
                  END
                ) AS BIGINT)
              END
            END AS q0,
            CASE
              WHEN y0 = 1
              THEN 3
              WHEN x0 IS NULL AND f0 IS NULL
              THEN 2
              WHEN x0 >= CAST('0.00000000000' AS NUMERIC(38, 11))
              AND x0 <= CAST('100.00000000000' AS NUMERIC(38, 11))
              THEN 0
              ELSE 1
            END AS m0,
            t.e4 AS e4
          FROM (
            SELECT
              r2.*,
              CAST(NULL AS INTEGER) AS d0,
              COALESCE(CASE WHEN e0 IS NULL THEN 1 ELSE 0 END, 0) AS z0,
              CAST(NULL AS INTEGER) AS d1,
              CASE
                WHEN k1 IS NULL
                THEN COALESCE(CASE WHEN e1 IS NULL THEN 1 ELSE 0 END, 0)
                ELSE 0
              END AS z1,
              CAST(NULL AS INTEGER) AS d2,
              CASE
                WHEN k2 IS NULL
                THEN COALESCE(CASE WHEN e2 IS NULL THEN 1 ELSE 0 END, 0)
                ELSE 0
              END AS z2,
              CASE
                WHEN k3 IS NULL AND NOT e3 IS NULL AND NOT 1 = 0
                THEN CASE WHEN e3 < 0 THEN -1 ELSE 1 END
              END AS d3,
              CASE
                WHEN k3 IS NULL
                THEN COALESCE(CASE WHEN e3 IS NULL OR 1 = 0 THEN 1 ELSE 0 END, 0)
                ELSE 0
              END AS z3,
              CASE
                WHEN x0 IS NULL AND NOT e4 IS NULL AND NOT 1 = 0
                THEN CASE WHEN e4 < 0 THEN -1 ELSE 1 END
              END AS f0,
              CASE
                WHEN x0 IS NULL
                THEN COALESCE(CASE WHEN e4 IS NULL OR 1 = 0 THEN 1 ELSE 0 END, 0)
                ELSE 0
              END AS y0
            FROM (
              SELECT
                unit AS unit,
                whose AS whose,
                e0 AS e0,
                (
                  CAST(CAST(e0 AS NVARCHAR(MAX)) AS NVARCHAR(MAX)) + '|'
                ) COLLATE Latin1_General_100_BIN2 AS k0,
                e1 AS e1,
                CAST(e1 AS DATE) AS k1,
                e2 AS e2,
                CAST(e2 AS BIT) AS k2,
                e3 AS e3,
                TRY_CAST(CAST(CAST(e3 AS NUMERIC(8, 2)) AS NVARCHAR(MAX)) AS NUMERIC(18, 9)) AS k3,
                e4 AS e4,
                TRY_CAST(CAST(CAST(e4 AS NUMERIC(8, 2)) AS NVARCHAR(MAX)) AS NUMERIC(38, 11)) AS x0
              FROM (
                SELECT
                  (
                    [town]
                  ) AS e0,
                  (
                    [day]
                  ) AS e1,
                  (
                    [new]
                  ) AS e2,
                  (
                    [fee]
                  ) AS e3,
                  (
                    [fee]
                  ) AS e4,
                  (
                    CAST([who] AS NVARCHAR(MAX)) + '|'
                  ) COLLATE Latin1_General_100_BIN2 AS unit,
                  CAST([who] AS NVARCHAR(MAX)) AS whose
                FROM [data] AS a_record
              ) AS r1
            ) AS r2
          ) AS t
          LEFT JOIN (
            SELECT
              (
                CAST('a' AS NVARCHAR(MAX)) + '|'
              ) COLLATE Latin1_General_100_BIN2 AS v,
              0 AS code
            UNION ALL
            SELECT
              (
                CAST('b''s' AS NVARCHAR(MAX)) + '|'
              ) COLLATE Latin1_General_100_BIN2 AS v,
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
              CAST('false' AS BIT) AS v,
              0 AS code
            UNION ALL
            SELECT
              CAST('true' AS BIT) AS v,
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
