"""Pattern matching cases recorded from Flink CEP."""
