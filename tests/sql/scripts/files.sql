-- mode: batch
-- set: table.display.max-column-width = 200
CREATE TABLE js (a INT, d DECIMAL(20, 10), e DECIMAL(10, 0), m MAP<STRING, INT>, t TIMESTAMP(3), z TIMESTAMP_LTZ(3), x DOUBLE, y BYTES) WITH ('connector' = 'filesystem', 'path' = '{dir}/js', 'format' = 'json');
INSERT INTO js VALUES (1, 0.0000001, 100, MAP['a', 1], TIMESTAMP '2024-01-02 03:04:05.6', CAST(TIMESTAMP '2024-01-02 03:04:05' AS TIMESTAMP_LTZ(3)), 1e10, x'414243'), (CAST(NULL AS INT), 12345.6, 0, MAP['b', CAST(NULL AS INT)], TIMESTAMP '2024-01-02 00:00:00', CAST(NULL AS TIMESTAMP_LTZ(3)), 1.5, CAST(NULL AS BYTES));
CREATE TABLE js_lines (line STRING) WITH ('connector' = 'filesystem', 'path' = '{dir}/js', 'format' = 'raw');
-- unordered
SELECT * FROM js_lines;
-- unordered
SELECT * FROM js;
CREATE TABLE jo (a INT, d DECIMAL(20, 10), m MAP<STRING, INT>, t TIMESTAMP(3)) WITH ('connector' = 'filesystem', 'path' = '{dir}/jo', 'format' = 'json', 'json.encode.decimal-as-plain-number' = 'true', 'json.timestamp-format.standard' = 'ISO-8601', 'json.encode.ignore-null-fields' = 'true');
INSERT INTO jo VALUES (1, 0.0000001, MAP['y', 1, 'x', 2], TIMESTAMP '2024-01-02 03:04:05.6'), (CAST(NULL AS INT), 1.0, MAP['x', 2], TIMESTAMP '2024-01-02 03:04:05');
CREATE TABLE jo_lines (line STRING) WITH ('connector' = 'filesystem', 'path' = '{dir}/jo', 'format' = 'raw');
-- unordered
SELECT * FROM jo_lines;
CREATE TABLE jx (a INT) WITH ('connector' = 'filesystem', 'path' = '{dir}/jf', 'format' = 'json', 'json.map-null-key.mode' = 'SOMETIMES');
INSERT INTO jx VALUES (1);
CREATE TABLE cs (a INT, s STRING, d DECIMAL(20, 10), t TIMESTAMP(3), b BOOLEAN, r ARRAY<INT>, dt DATE, tm TIME) WITH ('connector' = 'filesystem', 'path' = '{dir}/cs', 'format' = 'csv');
INSERT INTO cs VALUES (CAST(NULL AS INT), 'a "quoted", one', 12.5, CAST(NULL AS TIMESTAMP(3)), FALSE, CAST(NULL AS ARRAY<INT>), CAST(NULL AS DATE), CAST(NULL AS TIME)), (3, '', 1, TIMESTAMP '2024-01-02 00:00:00', TRUE, ARRAY[7], DATE '2024-01-02', TIME '00:00:00'), (4, 'plain', 100, TIMESTAMP '2024-01-02 03:04:05.6', TRUE, ARRAY[2, 1], DATE '2024-01-02', TIME '01:02:03');
CREATE TABLE cs_lines (line STRING) WITH ('connector' = 'filesystem', 'path' = '{dir}/cs', 'format' = 'raw');
-- unordered
SELECT * FROM cs_lines;
CREATE TABLE cx (a INT, s STRING, d DECIMAL(20, 10)) WITH ('connector' = 'filesystem', 'path' = '{dir}/cx', 'format' = 'csv');
INSERT INTO cx VALUES (1, 'two lines: one
and two', 0.0000001), (CAST(NULL AS INT), 'a "quoted", one', 12.5), (3, 'three
short
lines', 0);
CREATE TABLE cx_lines (line STRING) WITH ('connector' = 'filesystem', 'path' = '{dir}/cx', 'format' = 'raw');
-- unordered
SELECT * FROM cx_lines;
CREATE TABLE cr (a INT, r ARRAY<INT>) WITH ('connector' = 'filesystem', 'path' = '{dir}/cr', 'format' = 'csv');
INSERT INTO cr VALUES (1, ARRAY[1, 2]), (2, CAST(NULL AS ARRAY<INT>)), (3, ARRAY[7]);
-- unordered
SELECT * FROM cr;
CREATE TABLE co (a INT, s STRING, d DECIMAL(20, 10)) WITH ('connector' = 'filesystem', 'path' = '{dir}/co', 'format' = 'csv', 'csv.null-literal' = 'n/a', 'csv.field-delimiter' = '|', 'csv.quote-character' = '''');
INSERT INTO co VALUES (1, 'a|b', 0.0000001), (CAST(NULL AS INT), CAST(NULL AS STRING), 2), (2, 'it''s', 3);
CREATE TABLE co_lines (line STRING) WITH ('connector' = 'filesystem', 'path' = '{dir}/co', 'format' = 'raw');
-- unordered
SELECT * FROM co_lines;
-- unordered
SELECT * FROM co;
CREATE TABLE pt (a INT, p STRING, q INT) PARTITIONED BY (p, q) WITH ('connector' = 'filesystem', 'path' = '{dir}/pt', 'format' = 'json');
INSERT INTO pt VALUES (1, 'x', 1), (2, 'x', 2), (3, 'a b/c=d', 1);
-- unordered
SELECT * FROM pt;
-- unordered
SELECT * FROM pt WHERE q = 1;
-- unordered
SELECT a, q FROM pt WHERE p = 'x' AND q > 1;
INSERT INTO pt PARTITION (p = 'y') SELECT 9, 9;
-- unordered
SELECT * FROM pt WHERE p = 'y';
INSERT OVERWRITE pt PARTITION (p = 'x', q = 1) SELECT 8;
-- unordered
SELECT * FROM pt WHERE p = 'x';
CREATE TABLE rw (v INT) WITH ('connector' = 'filesystem', 'path' = '{dir}/rw', 'format' = 'raw', 'raw.endianness' = 'middle');
SELECT * FROM rw;
CREATE TABLE dz (a INT) WITH ('connector' = 'filesystem', 'path' = '{dir}/dz', 'format' = 'debezium-json', 'debezium-json.schema-include' = 'true');
INSERT INTO dz VALUES (1)
