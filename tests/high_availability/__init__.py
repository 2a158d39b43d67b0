"""Job managers that are killed, frozen and cut off: every record counts exactly once under any leader.

make test-ha
"""
