"""A deterministic simulation of checkpoints, commits and restarts: the real job master in a made-up world.

From one seed come the job, its settings, how long everything takes and what goes wrong. Real are the job master and all
it decides with: the coordinator, the writing of manifests, their format, the choice of what to start from, the restart
strategies, restoring, keyed state. Simulated are only the clock, the storage, the tasks and the system that the sinks
write to.

A second simulation covers the transport (`transport.py`): the state machines of the exchange between resident slots,
with a network that loses, duplicates and replays frames.

A third covers several job managers of one job (`leaders.py`): leases, terms, and leaders that are frozen and resume.

    python -m tests.simulation --seeds 10000
"""
