"""SQL: sales per city and ten minutes, from files to the console.

Shows:    CREATE TABLE for files and for the console, a watermark, a window function, INSERT; all in SQL.
Change:   the connectors: 'datagen' generates orders forever, 'blackhole' discards rows; the window.
Run:      python examples/sql_windows.py

Expected output:

    +I[Berlin, 2024-05-01T08:00, 2, 30.50]
    +I[Paris, 2024-05-01T08:00, 1, 7.25]
    +I[Berlin, 2024-05-01T08:10, 1, 12.00]
"""

from __future__ import annotations

import tempfile

from millstream.table import EnvironmentSettings, TableEnvironment

ORDERS = """\
2024-05-01 08:01:00,Berlin,20.00
2024-05-01 08:07:30,Paris,7.25
2024-05-01 08:04:00,Berlin,10.50
2024-05-01 08:12:00,Berlin,12.00
"""


def main() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("parallelism.default", "1")
    with tempfile.TemporaryDirectory() as directory:
        with open(f"{directory}/orders.csv", "w") as file:
            file.write(ORDERS)
        t_env.execute_sql(f"""
            CREATE TABLE orders (
              at_time TIMESTAMP(3),
              city STRING,
              price DECIMAL(10, 2),
              WATERMARK FOR at_time AS at_time - INTERVAL '5' MINUTE
            ) WITH ('connector' = 'filesystem', 'path' = '{directory}', 'format' = 'csv')
        """)
        t_env.execute_sql("""
            CREATE TABLE sales (city STRING, since TIMESTAMP(3), orders BIGINT, total DECIMAL(38, 2))
            WITH ('connector' = 'print')
        """)
        t_env.execute_sql("""
            INSERT INTO sales
            SELECT city, window_start, COUNT(*), SUM(price)
            FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at_time), INTERVAL '10' MINUTE))
            GROUP BY city, window_start, window_end
        """).wait()


if __name__ == "__main__":
    main()
