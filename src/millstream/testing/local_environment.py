"""LocalEnvironment: an environment whose programs run in this process, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millstream.common.configuration import Configuration
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.job_launcher import Launch, prepare
from millstream.jobmaster.local_launcher import start_here
from millstream.jobmaster.machine.flow import EpochSizer
from millstream.jobmaster.machine.restart import FixedDelay

# A bounded source is read as a whole.
_EVERYTHING = 1 << 30


class LocalEnvironment(StreamExecutionEnvironment):
    """Runs programs in a thread of this process: in milliseconds, as on Spark but for the processes.

    For tests of whole programs, which need not know: `execute()` and `execute_and_collect()` work as ever, and so do
    checkpoints, savepoints and restarts, where the configuration asks for them.

    Args:
        configuration: settings.
        clock: a wall clock in milliseconds, for example a `ManualClock`; without one it is the real one.
        restarts: how many failures a job survives; it then goes on from the last epoch that was good.

    Example:
        >>> env = LocalEnvironment()
        >>> list(env.from_collection([1, 2, 3]).map(lambda x: x * x).execute_and_collect())
        [1, 4, 9]
    """

    def __init__(
        self,
        configuration: Configuration | None = None,
        clock: Callable[[], int] | None = None,
        restarts: int = 0,
    ) -> None:
        super().__init__(configuration)
        self._clock = clock
        self._restarts = restarts
        if not self._config.contains_key("parallelism.default"):
            self.set_parallelism(1)

    def _start_ahead(self, config: Configuration) -> None:
        """There is nothing to start."""

    def _launch(self, job: Launch) -> JobMaster:
        prepared = prepare(job)
        options = prepared.options
        options.sizer = EpochSizer(max_records=_EVERYTHING, budget=_EVERYTHING)
        options.buffer_timeout = 0.0
        if self._restarts:
            options.restart = FixedDelay(self._restarts, 0.0)
            # With every epoch.
            options.checkpoints = replace(options.checkpoints, enabled=True, interval=0.0)
        return start_here(prepared)
