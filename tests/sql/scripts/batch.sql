-- mode: batch
CREATE TEMPORARY VIEW t AS SELECT * FROM (VALUES ('a', 1), ('b', 2), ('a', 3), ('c', 4)) AS v(k, n);
SELECT k, SUM(n) AS s FROM t GROUP BY k ORDER BY s DESC;
SELECT * FROM t ORDER BY n DESC LIMIT 2;
SELECT COUNT(*) FROM t WHERE n > 100;
SELECT a.k, b.n FROM t AS a JOIN t AS b ON a.k = b.k WHERE a.n < b.n;
CREATE TABLE files (k STRING, n INT) PARTITIONED BY (k) WITH ('connector' = 'filesystem', 'path' = '{dir}/out', 'format' = 'json');
INSERT INTO files SELECT k, n FROM t;
SELECT n, k FROM files ORDER BY n;
INSERT OVERWRITE files PARTITION (k = 'a') SELECT 100;
SELECT n, k FROM files ORDER BY n;
SELECT k, MAX(n) FROM t GROUP BY k EXCEPT SELECT 'c', 4 ORDER BY k;
