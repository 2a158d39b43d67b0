"""Every spelling of a state backend has the same effect."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.common import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.datastream import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedStream,
    StreamExecutionEnvironment,
    launch_context,
)
from millstream.datastream.stream_execution_environment import builder_of
from millstream.graph.job_graph import build_job_graph
from millstream.operators.windows.window_operator import WindowOperator
from millstream.state.backend import Backend, backend_of
from millstream.testing import CollectSink, LocalEnvironment, LocalJob
from tests.support.backend_programs import running, windows

Env = StreamExecutionEnvironment

KEYS = ("state.backend.type", "state.backend")
NAMES = {
    Backend.HASHMAP: ("hashmap", "HashMap", "HASHMAP", "jobmanager", "filesystem", "FileSystem"),
    Backend.LMDB: ("lmdb", "LMDB", "rocksdb", "RocksDB", " rocksdb "),
}
SPELLINGS: list[tuple[dict[str, str], Backend]] = [
    ({}, Backend.HASHMAP),
    *(({key: name}, backend) for key in KEYS for backend, names in NAMES.items() for name in names),
    # The key of today counts.
    ({"state.backend.type": "hashmap", "state.backend": "rocksdb"}, Backend.HASHMAP),
    ({"state.backend.type": "lmdb", "state.backend": "filesystem"}, Backend.LMDB),
]
EVERY_SPELLING = pytest.mark.parametrize(("settings", "backend"), SPELLINGS, ids=lambda s: str(s))

WRONG = [{key: name} for key in KEYS for name in ("rocks", "memory", "org.example.Factory")]
SENTENCE = r"state.backend.type is '{}': it must be 'hashmap' or 'lmdb' \(also named 'rocksdb'\)."


def keyed(env: Env) -> KeyedStream:
    return env.from_collection([("a", 1), ("a", 2)]).key_by(lambda e: e[0])


@EVERY_SPELLING
def test_backend_option_accepts_every_spelling(settings: dict[str, str], backend: Backend) -> None:
    env = Env.get_execution_environment(Configuration.from_dict(settings))
    assert backend_of(env.get_configuration()) is backend
    with pytest.warns(DeprecationWarning):
        shown = env.get_state_backend()
    expected = {Backend.HASHMAP: HashMapStateBackend, Backend.LMDB: EmbeddedRocksDBStateBackend}[backend]
    assert (shown is None) if not settings else type(shown) is expected


@EVERY_SPELLING
def test_backend_selects_operators_and_state_storage(settings: dict[str, str], backend: Backend) -> None:
    env, sink = Env.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(1), CollectSink()
    for stream in windows(env):
        stream.sink_to(sink)
    job = LocalJob(env)
    operators = [n.operator for v in job.plan.vertices for n in v.nodes]
    chosen = {type(o).__name__ for o in operators if isinstance(o, WindowOperator)}
    assert chosen == {operator for _, operator, _ in running(backend)}
    assert job.plan.settings.state_backend is backend
    job.run()
    assert set(sink.results()) == running(backend)


@EVERY_SPELLING
def test_backend_does_not_change_the_execution_plan(settings: dict[str, str], backend: Backend) -> None:
    def shown(env: Env) -> Any:
        for stream in windows(env):
            stream.print()
        graph = builder_of(env).stream_graph(None, builder_of(env).sinks)
        vertices = build_job_graph(graph).vertices
        return env.get_execution_plan(), [(v.name, [n.id for n in v.nodes]) for v in vertices]

    plain = Env.get_execution_environment().set_parallelism(1)
    env = Env.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(1)
    assert shown(env) == shown(plain)


def test_generated_window_ids_are_stable() -> None:
    """The ids that locate window state in earlier savepoints."""
    env = Env.get_execution_environment().set_parallelism(1)
    for stream in windows(env):
        stream.print()
    nodes = builder_of(env).stream_graph(None, builder_of(env).sinks).nodes
    ids = [n.operator_id[:8] for n in nodes if isinstance(n.operator, WindowOperator)]
    assert ids == ["873af315", "058ada22", "935b4162", "8b648c6a"]


def test_backend_set_after_the_windows_takes_effect() -> None:
    env, sink = Env.get_execution_environment().set_parallelism(1), CollectSink()
    for stream in windows(env):
        stream.sink_to(sink)
    env.get_configuration().set_string("state.backend", "rocksdb")
    LocalJob(env).run()
    assert set(sink.results()) == running(Backend.LMDB)


def test_backend_from_the_command_line_overrides_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(launch_context._overrides, "state.backend.type", "RocksDB")
    env, sink = Env.get_execution_environment().set_parallelism(1), CollectSink()
    env.get_configuration().set_string("state.backend.type", "hashmap")
    for stream in windows(env):
        stream.sink_to(sink)
    LocalJob(env).run()
    assert set(sink.results()) == running(Backend.LMDB)


@pytest.mark.parametrize("settings", WRONG, ids=str)
def test_backend_rejects_an_unknown_name(settings: dict[str, str]) -> None:
    config = Configuration.from_dict(settings)
    sentence = SENTENCE.format(*settings.values())
    env = Env.get_execution_environment(config).set_parallelism(1)
    keyed(env).sum(1).sink_to(CollectSink())
    with pytest.raises(InvalidProgramError, match=sentence):
        LocalJob(env)
    with pytest.raises(InvalidProgramError, match=sentence):
        list(keyed(LocalEnvironment(config)).sum(1).execute_and_collect())
