"""Operators of batch jobs, which emit at the end of input and may spill to disk."""
