"""A deterministic simulation of checkpoints, commits and restarts: the real job master in a simulated world.

A seed determines the job, its settings, all latencies and all faults. The job master and its parts are real: the
coordinator, the manifests and their format, the choice of the checkpoint to restore, the restart strategies, restoring,
keyed state. Only the clock, the storage, the tasks and the external system of the sinks are simulated.

A second simulation covers the transport (`transport.py`): the state machines of the exchange between resident slots,
with a network that loses, duplicates and replays frames.

A third simulation covers several job managers of one job (`leaders.py`): leases, terms, frozen and resumed leaders.

    python -m tests.simulation --seeds 10000
"""
