"""A session cluster: one Spark that takes many jobs, each in the process of its program."""
