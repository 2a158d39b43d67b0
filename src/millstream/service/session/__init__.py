"""A session cluster: one Spark that runs many jobs, each in its program's process."""
