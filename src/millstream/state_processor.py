"""Reads, changes and writes savepoints: Flink's State Processor API, in Python and without a running job.

    savepoint = Savepoint.load("/savepoints/savepoint-1f2e3d-0a1b2c3d4e5f")
    for row in savepoint.keyed_state("counts", "total"):
        print(row.key, row.value)

    savepoint.update("counts", "total", lambda row: row.value * 100)  # from euros to cents
    savepoint.rename("counts", "totals")
    savepoint.write("/savepoints/in-cents")

The loaded savepoint never changes. Checkpoints can be loaded too, and written as savepoints. If keys or
values are objects of the program's classes, the program's directory must be on PYTHONPATH.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from millstream.checkpoint.inspect import (
    KEYED,
    OPERATOR,
    Inspection,
    OperatorInfo,
    SourceInfo,
    StateInfo,
)
from millstream.checkpoint.savepoint_editor import SavepointEditor
from millstream.checkpoint.signing import signing_keys
from millstream.checkpoint.state_rows import StateRow
from millstream.checkpoint.storage import storage_options
from millstream.common.aliases import Value
from millstream.common.configuration import Configuration
from millstream.common.pickles import load

if TYPE_CHECKING:
    from millstream.spark.dataframes import DataFrame, SparkSession

__all__ = ["OperatorInfo", "Savepoint", "SourceInfo", "StateInfo", "StateRow"]


class Savepoint:
    """A savepoint or checkpoint, to read, and to write again with changes.

    Operators are named by uid; operators without one by id, a prefix of it, or name.

    Example:
        >>> import tempfile
        >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_collection(["a", "b", "a", "b"]).map(lambda w: (w, 1))
        >>> _ = words.key_by(lambda t: t[0]).sum(1).uid("counts").sink_to(CollectSink())
        >>> job = LocalJob(env, epoch_sizes=lambda: 3)
        >>> _ = job.run_epoch()
        >>> directory = tempfile.mkdtemp()
        >>> savepoint = Savepoint.load(save_savepoint(job, f"{directory}/before"))
        >>> sorted((row.key, row.value) for row in savepoint.keyed_state("counts", "reduce"))
        [('a', ('a', 2)), ('b', ('b', 1))]
        >>> after = savepoint.remove("counts", "reduce", "b").write(f"{directory}/after")
        >>> [row.key for row in Savepoint.load(after).keyed_state("counts", "reduce")]
        ['a']
    """

    def __init__(self, inspection: Inspection, configuration: Configuration) -> None:
        self._inspection = inspection
        self._edit = SavepointEditor(inspection)
        self._config = configuration

    @staticmethod
    def load(path: str | os.PathLike[str], configuration: Configuration | None = None) -> Savepoint:
        """Open a savepoint or checkpoint.

        Args:
            path: its directory, or a URL that fsspec supports.
            configuration: settings of remote storage (`s3.*`), of Spark for `as_dataframe`, and
                `millstream.state.signing-key-file`, which refuses snapshots without a valid signature.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> savepoint.kind
            'savepoint'
        """
        config = configuration or Configuration()
        keys = signing_keys(config)
        return Savepoint(Inspection.open(os.fspath(path), storage_options(config), load, keys), config)

    # --- description

    @property
    def location(self) -> str:
        """The directory or URL.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> savepoint.location.endswith("before")
            True
        """
        return self._inspection.location

    @property
    def kind(self) -> str:
        """Either "savepoint" or "checkpoint".

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> savepoint.kind
            'savepoint'
        """
        return self._inspection.manifest.kind

    @property
    def job_name(self) -> str:
        """The name of its job."""
        return self._inspection.snapshot.job_name

    @property
    def job_id(self) -> str:
        """The id of its job."""
        return self._inspection.snapshot.job_id

    @property
    def timestamp(self) -> int:
        """The time of the snapshot in milliseconds since 1970."""
        return self._inspection.manifest.timestamp

    # --- contents

    def operators(self) -> list[OperatorInfo]:
        """Return the operators with their states, as loaded. Needs no classes of the program.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> [(operator.uid, [state.name for state in operator.states]) for operator in savepoint.operators()]
            [(None, []), ('words', []), ('counts', ['reduce']), ('sink', [])]
        """
        return self._inspection.operators()

    def sources(self) -> list[SourceInfo]:
        """Return the positions of the sources. Needs no classes of the program.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> len(savepoint.sources())
            1
        """
        return self._inspection.sources()

    def keyed_state(self, uid: str, name: str) -> Iterator[StateRow]:
        """Yield the rows of a keyed state, of all subtasks, as loaded.

        Internal states are keyed state too: "event-timers", "processing-timers", "window-contents", ..., under the
        names that `operators` returns.

        Args:
            uid: the operator.
            name: the state.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> sorted((row.key, row.value) for row in savepoint.keyed_state("counts", "reduce"))
            [('a', ('a', 2)), ('b', ('b', 1))]
        """
        return self._rows(uid, name, KEYED)

    def operator_state(self, uid: str, name: str) -> Iterator[StateRow]:
        """Yield the rows of operator state: the entries of broadcast state, or one list per subtask."""
        return self._rows(uid, name, OPERATOR)

    def _rows(self, uid: str, name: str, scope: str | None) -> Iterator[StateRow]:
        operator = self._inspection.operator(uid)
        return self._inspection.rows(operator, self._inspection.state(operator, name, scope))

    def as_dataframe(self, uid: str, name: str, spark: SparkSession | None = None) -> DataFrame:
        """Return the rows of a state as a Spark DataFrame with the columns key, namespace and value.

        Plain values have a common Spark type: numbers, text, structs for tuples, rows and windows, arrays
        and maps. Other and mixed values are text. The rows pass through this process; a savepoint's files are
        Parquet and can be read by Spark alone, as text: `spark.read.parquet(f"{savepoint.location}/*.parquet")`.

        Args:
            uid: the operator.
            name: the state, keyed or not.
            spark: the session to use; by default that of this program.
        """
        from millstream.spark.dataframes import state_frame

        rows = ((row.key, row.namespace, row.value) for row in self._rows(uid, name, None))
        return state_frame(rows, spark, self._config)

    # --- changes

    def put(self, uid: str, name: str, key: Value, value: Value, namespace: Value = None) -> Savepoint:
        """Set a row, whether or not the key has one.

        Args:
            uid: the operator.
            name: the state. The value of aggregating state is its accumulator, that of a timer is True.
            key: the key; of broadcast state, the key of the entry; None for lists of subtasks.
            value: a list for list state, a dict for map state.
            namespace: the window, the time of a timer, the number of a subtask; see StateRow.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> after = savepoint.put("counts", "reduce", "a", ("a", 100)).write("after")
            >>> sorted(row.value for row in Savepoint.load(after).keyed_state("counts", "reduce"))
            [('a', 100), ('b', 1)]
        """
        self._edit.put(uid, name, key, value, namespace)
        return self

    def update(self, uid: str, name: str, function: Callable[[StateRow], Value]) -> Savepoint:
        """Set every row of a state to a new value.

        Args:
            uid: the operator.
            name: the state.
            function: returns the new value of a row; None removes the row.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> cents = savepoint.update("counts", "reduce", lambda row: (row.key, row.value[1] * 100)).write("cents")
            >>> sorted(row.value for row in Savepoint.load(cents).keyed_state("counts", "reduce"))
            [('a', 200), ('b', 100)]
        """
        self._edit.update(uid, name, function)
        return self

    def remove(self, uid: str, name: str, key: Value, namespace: Value = None) -> Savepoint:
        """Remove the row of a key and namespace; without a namespace, all rows of the key.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> after = savepoint.remove("counts", "reduce", "a").write("after")
            >>> [row.value for row in Savepoint.load(after).keyed_state("counts", "reduce")]
            [('b', 1)]
        """
        self._edit.remove(uid, name, key, namespace)
        return self

    def drop_state(self, uid: str, name: str) -> Savepoint:
        """Remove a state of an operator, for example one whose kind has changed in the program.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> after = Savepoint.load(savepoint.drop_state("counts", "reduce").write("after"))
            >>> [state.name for operator in after.operators() for state in operator.states]
            []
        """
        self._edit.drop_state(uid, name)
        return self

    def drop_operator(self, uid: str) -> Savepoint:
        """Remove an operator with its state; also a source's position and a sink's staged output.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> after = Savepoint.load(savepoint.drop_operator("counts").write("after"))
            >>> [operator.uid for operator in after.operators()]
            [None, 'words', 'sink']
        """
        self._edit.drop_operator(uid)
        return self

    def rename(self, uid: str, new_uid: str) -> Savepoint:
        """Give an operator another uid: its state is restored by the operator with that uid.

        Ids of operators without uid depend on their inputs: give those operators uids too.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> after = Savepoint.load(savepoint.rename("counts", "totals").write("after"))
            >>> [operator.uid for operator in after.operators()]
            [None, 'words', 'totals', 'sink']
        """
        self._edit.rename(uid, new_uid)
        return self

    def write(self, path: str | os.PathLike[str]) -> str:
        """Write the loaded state with all changes as a savepoint; return its location.

        Args:
            path: an empty or new directory, or a URL that fsspec supports.

        Example:
            >>> from millstream.testing import CollectSink, LocalJob, save_savepoint
            >>> words = env.from_collection(["a", "b", "a", "c"]).map(lambda word: (word, 1)).uid("words")
            >>> _ = words.key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(CollectSink()).uid("sink")
            >>> job = LocalJob(env, epoch_sizes=lambda: 3)
            >>> _ = job.run_epoch()
            >>> savepoint = Savepoint.load(save_savepoint(job, "before"))
            >>> after = savepoint.remove("counts", "reduce", "a").write("after")
            >>> Savepoint.load(after).kind
            'savepoint'
        """
        return self._edit.write(os.fspath(path), keys=signing_keys(self._config))
