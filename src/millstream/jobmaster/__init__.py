"""The driver's side of a job: the job master, its launchers, and the pure job machine in `machine/`."""
