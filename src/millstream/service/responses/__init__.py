"""What REST tells of a job, made from its view alone: plain values with Flink's names. Pure."""
