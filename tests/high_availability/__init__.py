"""Job managers that are killed, frozen and cut off: every record counts once, whoever leads.

make test-ha
"""
