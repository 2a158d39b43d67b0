"""What stands behind the Table API and SQL: language, types, functions, plans, and operators on columns."""
