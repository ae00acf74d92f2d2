-- a measure
SELECT SUM(wage) FROM survey

-- two measures
SELECT SUM(wage), SUM(bonus) FROM survey

-- a sum of sums
SELECT SUM(wage) + SUM(bonus) FROM survey

-- a sum less a multiple of a count
SELECT SUM(wage) - 100 * COUNT(*) FROM survey

-- a measure over a constant
SELECT SUM(wage) / 100 AS hundreds, SUM(wage / 100) AS same FROM survey

-- a third of a measure
SELECT SUM(wage) / 3 AS third FROM survey

-- an attribute
SELECT SUM(age), SUM(children) FROM survey

-- a decimal attribute
SELECT SUM(score) FROM survey

-- an expression of attributes
SELECT SUM(age * 2 + 1), SUM(age * children) FROM survey

-- an expression with division
SELECT SUM(age / 10) FROM survey

-- an expression in decimals
SELECT SUM(age * 0.1), SUM(score * 1.25) FROM survey

-- an expression in doubles
SELECT SUM(SQRT(age)) AS s FROM survey

-- CASE counts
SELECT SUM(CASE WHEN region = 'south' THEN 1 ELSE 0 END) AS south FROM survey

-- CASE with several branches
SELECT SUM(CASE WHEN age < 10 THEN 1 WHEN age < 20 THEN 2 ELSE 0 END) AS s FROM survey

-- CASE of a value
SELECT SUM(CASE region WHEN 'south' THEN 10 WHEN 'north' THEN -3 END) AS s FROM survey

-- CASE without ELSE
SELECT SUM(CASE WHEN age > 20 THEN age END) AS s FROM survey

-- a measure chosen by CASE
SELECT SUM(CASE WHEN region = 'south' THEN wage ELSE 0 END) AS s FROM survey

-- a measure chosen by CASE without ELSE
SELECT SUM(CASE WHEN married THEN bonus END) AS s FROM survey

-- one of two measures chosen by CASE
SELECT SUM(CASE WHEN married THEN wage ELSE bonus END) AS s FROM survey

-- a measure or a constant chosen by CASE
SELECT SUM(CASE WHEN age < 20 THEN bonus ELSE 5 END) AS s FROM survey

-- a measure times an attribute
SELECT SUM(wage * age), SUM(age * bonus) FROM survey

-- a measure times a condition
SELECT SUM(wage * CASE WHEN age > 20 THEN 1 ELSE 0 END) AS s FROM survey

-- a measure plus an attribute
SELECT SUM(wage + age), SUM(wage - 10) FROM survey

-- a measure that may be NULL plus an attribute
SELECT SUM(bonus + age), SUM(bonus - 1) FROM survey

-- a measure plus an attribute that may be NULL
SELECT SUM(wage + children) FROM survey

-- both may be NULL
SELECT SUM(bonus + children), SUM(children * bonus) FROM survey

-- a measure twice
SELECT SUM(wage + 2 * wage), SUM(wage) + SUM(bonus) FROM survey

-- a measure with a default
SELECT SUM(COALESCE(bonus, 0)), SUM(COALESCE(bonus, age)) FROM survey

-- a measure negated
SELECT SUM(-wage), -SUM(-bonus) FROM survey

-- a measure cast
SELECT SUM(wage::float8) AS f, SUM(CAST(wage AS double precision) * 2) AS d FROM survey

-- FILTER of a sum
SELECT SUM(wage) FILTER (WHERE age < 20) AS young FROM survey

-- the sum over nothing
SELECT COALESCE(SUM(wage), 0) AS s FROM survey WHERE age > 100

-- COALESCE of a sum
SELECT COALESCE(SUM(wage), 0) AS s FROM survey

-- the average of a measure
SELECT AVG(wage) FROM survey

-- the average of a measure that may be NULL
SELECT AVG(bonus) FROM survey

-- the average of an attribute
SELECT AVG(age), AVG(children), AVG(score) FROM survey

-- the average of an expression
SELECT AVG(age * 2.5), AVG(CASE WHEN married THEN 1 ELSE 0 END) AS share FROM survey

-- the average of what CASE chooses
SELECT AVG(CASE WHEN region = 'south' THEN wage END) AS s FROM survey

-- the average of a product
SELECT AVG(wage * age) AS s FROM survey

-- the average with FILTER
SELECT AVG(wage) FILTER (WHERE age > 20) AS old FROM survey

-- the average over nothing is NULL
SELECT AVG(wage) FROM survey WHERE age > 100

-- averages by group
SELECT region, AVG(wage), AVG(age) FROM survey GROUP BY region

-- an average rounded
SELECT ROUND(AVG(age), 2) AS a, ROUND(AVG(wage)::numeric, 1) AS w FROM survey

-- a function of averages
SELECT AVG(wage) - 2 * AVG(age) AS d FROM survey

-- the average as a ratio
SELECT SUM(wage) / COUNT(wage) AS a, SUM(wage) / COUNT(*) AS b FROM survey

-- sums by group
SELECT region, SUM(wage), SUM(age), COUNT(*) FROM survey GROUP BY region

-- a long sum of a measure
SELECT SUM(wage + 1 + age + 1 + children + 1 + age + 1 + age + 1 + age + 1 + age + 1 + age + 1 + age + 1 + age + 1 + age + 1 + age + 1 + age + 1 + age + 1 + age + 1 + age + 1 + age + 1 + age + 1) AS s FROM survey

-- a measure times what may be NULL, plus a constant
SELECT SUM(wage * children + 1), SUM(bonus * NULLIF(age, 3) - children) FROM survey

-- a measure plus NULL
SELECT COALESCE(SUM(wage + NULL), 0) AS s, COUNT(wage + NULL) AS c FROM survey

-- the average of a measure, NULL as a number
SELECT AVG(COALESCE(bonus, 0)) AS a, COUNT(COALESCE(bonus, 0)) AS n FROM survey

-- the same, by an attribute that is never NULL
SELECT region, AVG(COALESCE(bonus, age)) AS a FROM survey GROUP BY region
