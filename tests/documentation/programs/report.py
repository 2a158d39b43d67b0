"""A SQL query with a join and an aggregate, for a picture of its plan on the page."""

from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.enable_checkpointing(1000)
t_env = StreamTableEnvironment.create(env)
t_env.execute_sql("""
    CREATE TABLE orders (id INT, customer INT, amount INT)
    WITH ('connector' = 'datagen', 'rows-per-second' = '200', 'fields.id.kind' = 'sequence',
          'fields.id.start' = '1', 'fields.id.end' = '100000000',
          'fields.customer.min' = '1', 'fields.customer.max' = '50', 'fields.amount.min' = '1',
          'fields.amount.max' = '200')
""")
t_env.execute_sql("""
    CREATE TABLE customers (customer INT, city INT)
    WITH ('connector' = 'datagen', 'fields.customer.kind' = 'sequence', 'fields.customer.start' = '1',
          'fields.customer.end' = '50', 'fields.city.min' = '1', 'fields.city.max' = '5')
""")
t_env.execute_sql("CREATE TABLE totals (city INT, orders BIGINT, amount BIGINT) WITH ('connector' = 'blackhole')")
t_env.execute_sql("""
    INSERT INTO totals
    SELECT city, COUNT(*), SUM(amount)
    FROM orders JOIN customers USING (customer)
    WHERE amount > 10
    GROUP BY city
""").wait()
