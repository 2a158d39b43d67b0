"""What happens to a record: pure Python, no Spark, no clock, no I/O."""
