-- mode: batch
CREATE TEMPORARY VIEW t AS SELECT * FROM (VALUES ('a', 1), ('b', 2), ('a', 3), ('c', 4)) AS v(k, n);
SELECT k, n, ROW_NUMBER() OVER (PARTITION BY k ORDER BY n DESC) AS rn FROM t ORDER BY k, rn;
