"""State backends: every spelling of one means the same, to whatever depends on it."""

from __future__ import annotations

import pytest

from millstream.common import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.datastream import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedStream,
    StreamExecutionEnvironment,
)
from millstream.state.backend import Backend, backend_of
from millstream.testing import CollectSink, LocalEnvironment, LocalJob

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
SENTENCE = r"state.backend.type is '{}': it must be 'hashmap', or 'lmdb' \('rocksdb' is taken for it\)."


def keyed(env: Env) -> KeyedStream:
    return env.from_collection([("a", 1), ("a", 2)]).key_by(lambda e: e[0])


@EVERY_SPELLING
def test_every_spelling_of_a_backend(settings: dict[str, str], backend: Backend) -> None:
    env = Env.get_execution_environment(Configuration.from_dict(settings))
    assert backend_of(env.get_configuration()) is backend
    with pytest.warns(DeprecationWarning):
        shown = env.get_state_backend()
    expected = {Backend.HASHMAP: HashMapStateBackend, Backend.LMDB: EmbeddedRocksDBStateBackend}[backend]
    assert (shown is None) if not settings else type(shown) is expected


@pytest.mark.parametrize("settings", WRONG, ids=str)
def test_a_wrong_name_is_refused(settings: dict[str, str]) -> None:
    config = Configuration.from_dict(settings)
    sentence = SENTENCE.format(*settings.values())
    env = Env.get_execution_environment(config).set_parallelism(1)
    keyed(env).sum(1).sink_to(CollectSink())
    with pytest.raises(InvalidProgramError, match=sentence):
        LocalJob(env)
    with pytest.raises(InvalidProgramError, match=sentence):
        list(keyed(LocalEnvironment(config)).sum(1).execute_and_collect())
