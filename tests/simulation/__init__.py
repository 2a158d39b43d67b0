"""A deterministic simulation of checkpoints, commits and restarts: the real job master in a made-up world.

From one seed come the job, its settings, how long everything takes and what goes wrong. Real are the job master and all
it decides with: the coordinator, the writing of manifests, their format, the choice of what to start from, the restart
strategies, restoring, keyed state. Simulated are only the clock, the storage, the tasks and the system that the sinks
write to.

Beside it runs the transport (`transport.py`): the machines of the exchange between slots that stay, with a network that
loses, doubles and repeats.

And several job managers of one job (`leaders.py`): leases, terms, and leaders that are frozen and woken.

    python -m tests.simulation --seeds 10000
"""
