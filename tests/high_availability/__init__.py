"""Job managers that are killed, frozen and partitioned: every record counts exactly once under any leader.

make test-ha
"""
