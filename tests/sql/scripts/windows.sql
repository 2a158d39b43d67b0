CREATE TABLE bids (ts TIMESTAMP(3), k STRING, price INT, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
WITH ('connector' = 'filesystem', 'path' = '{dir}/bids', 'format' = 'csv');
INSERT INTO bids VALUES (TIMESTAMP '2024-01-01 00:00:01', 'a', 1), (TIMESTAMP '2024-01-01 00:00:04', 'b', 2), (TIMESTAMP '2024-01-01 00:00:12', 'a', 3), (TIMESTAMP '2024-01-01 00:00:11', 'a', 4), (TIMESTAMP '2024-01-01 00:00:03', 'b', 100), (TIMESTAMP '2024-01-01 00:00:25', 'b', 5);
-- unordered
SELECT k, window_start, window_end, SUM(price) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end;
-- unordered
SELECT k, window_start, window_end, SUM(price) FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end;
-- unordered
SELECT window_start, window_end, COUNT(*) FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
-- unordered
SELECT k, TUMBLE_START(ts, INTERVAL '10' SECOND), TUMBLE_END(ts, INTERVAL '10' SECOND), MAX(price) FROM bids GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND);
-- unordered
SELECT k, SESSION_START(ts, INTERVAL '5' SECOND), SUM(price) FROM bids GROUP BY k, SESSION(ts, INTERVAL '5' SECOND);
-- unordered
SELECT k, price, window_start FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND));
SELECT k, ts, price FROM bids;
DESCRIBE bids;
SELECT price FROM bids ORDER BY price;
