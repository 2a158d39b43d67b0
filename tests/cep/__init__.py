"""Cases recorded on Flink CEP."""
