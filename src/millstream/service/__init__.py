"""The job service: status and control of a process's jobs over REST."""
