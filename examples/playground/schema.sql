-- Read with its changes (postgres-cdc): the log contains the previous row of an UPDATE.
CREATE TABLE products (name text PRIMARY KEY, category text NOT NULL);
ALTER TABLE products REPLICA IDENTITY FULL;
INSERT INTO products VALUES ('bread', 'food'), ('cheese', 'food'), ('olives', 'food'), ('wine', 'drinks');
-- Written by the job (jdbc).
CREATE TABLE windows (window_end timestamp, city text, orders bigint, total int, PRIMARY KEY (window_end, city));
CREATE TABLE revenue (category text PRIMARY KEY, orders bigint, total int);
