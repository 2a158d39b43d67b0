"""The driver's half of a job: its life cycle, the epoch loop, flow control."""
