"""The engine of the Table API and SQL: language, types, functions, plans, and operators on columns."""
