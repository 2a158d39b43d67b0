"""Statements of SQL in sessions: for a prompt of this process, and over REST for Flink's SQL client and JDBC driver."""
