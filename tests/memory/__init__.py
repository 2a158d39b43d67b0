"""Memory budgets recorded from Flink."""
