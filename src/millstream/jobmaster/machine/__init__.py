"""The pure half of the job master: events in, instructions out; no clock, thread, file or engine."""
