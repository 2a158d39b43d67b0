CREATE TEMPORARY VIEW l AS SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'c')) AS v(id, name);
CREATE TEMPORARY VIEW r AS SELECT * FROM (VALUES (1, 10), (1, 11), (3, 30), (4, 40)) AS v(rid, amount);
-- unordered
SELECT * FROM l JOIN r ON id = rid;
-- unordered
SELECT * FROM l JOIN r ON id = rid AND amount > 10;
-- unordered
SELECT id FROM l WHERE id IN (SELECT rid FROM r);
-- unordered
SELECT name FROM l UNION ALL SELECT name FROM l WHERE id > 1;
SELECT x FROM (VALUES (1), (2), (2), (3)) AS v(x) ORDER BY x DESC LIMIT 2;
SELECT id, word FROM (VALUES (1, ARRAY['a', 'b']), (2, ARRAY['c'])) AS v(id, words) CROSS JOIN UNNEST(words) AS w(word);
-- unordered
SELECT id, id FROM l JOIN r ON id = id;
