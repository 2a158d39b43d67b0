"""The exchange between driver and resident slots: frames over sockets, two pure machines, and the slot's loop.

Nothing here knows Spark. `millstream.spark.resident_epochs` starts the processes.
"""
