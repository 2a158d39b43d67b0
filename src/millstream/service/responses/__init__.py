"""Bodies of REST responses, built from a job's view alone: plain values under Flink's names. Pure."""
