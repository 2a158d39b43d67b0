"""Memory budgets recorded on Flink."""
