"""The job service: what is known of the jobs of a process, told and steered over REST."""
