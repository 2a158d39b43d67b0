"""Random SQL programs against DuckDB."""
