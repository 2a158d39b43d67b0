CREATE TABLE orders (
  id INT NOT NULL,
  item STRING,
  price DECIMAL(10, 2),
  ts TIMESTAMP(3),
  cost AS price * 2,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
  PRIMARY KEY (id) NOT ENFORCED
) COMMENT 'what was bought' WITH ('connector' = 'datagen', 'number-of-rows' = '3');
SHOW TABLES;
DESCRIBE orders;
SHOW CREATE TABLE orders;
CREATE VIEW cheap AS SELECT id, item FROM orders WHERE price < 10;
SHOW VIEWS;
DESCRIBE cheap;
CREATE DATABASE shop;
SHOW DATABASES;
USE shop;
SHOW CURRENT DATABASE;
SHOW TABLES;
USE default_database;
ALTER TABLE orders ADD note STRING;
DESCRIBE orders;
ALTER TABLE orders RENAME TO purchases;
SHOW TABLES;
DROP VIEW cheap;
DROP TABLE purchases;
SHOW TABLES;
DROP DATABASE shop;
CREATE TEMPORARY VIEW v AS SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t(id, name);
SELECT * FROM v;
SHOW CATALOGS;
SHOW CURRENT CATALOG;
SHOW MODULES;
CREATE TABLE IF NOT EXISTS o (a INT) WITH ('connector' = 'print');
CREATE TABLE o (a INT) WITH ('connector' = 'print');
DROP TABLE nowhere;
