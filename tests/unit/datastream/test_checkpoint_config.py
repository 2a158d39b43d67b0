"""Settings of checkpoints, state backends and storages: by methods, by keys, by deprecated keys and names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import millstream.datastream
from millstream.checkpoint.options import CheckpointOptions
from millstream.common import Configuration, Duration
from millstream.common.errors import InvalidProgramError
from millstream.datastream import (
    CheckpointConfig,
    CheckpointingMode,
    CheckpointStorage,
    CustomCheckpointStorage,
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    FsStateBackend,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    MemoryStateBackend,
    PredefinedOptions,
    RocksDBStateBackend,
    StateBackend,
    StreamExecutionEnvironment,
    checkpoint_config,
    externalized_checkpoint_retention,
)
from millstream.state.backend import Backend, backend_of

Retention = ExternalizedCheckpointRetention


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment()


@pytest.fixture
def config(env: StreamExecutionEnvironment) -> CheckpointConfig:
    return env.get_checkpoint_config()


def options(env: StreamExecutionEnvironment) -> CheckpointOptions:
    return CheckpointOptions.read(env.get_configuration())


def read(**settings: str) -> CheckpointOptions:
    """Read keys of `execution.checkpointing`, with `_` for `-`."""
    keys = {f"execution.checkpointing.{k.replace('_', '-')}": v for k, v in settings.items()}
    return CheckpointOptions.read(Configuration.from_dict(keys))


# --- CheckpointOptions


def test_checkpoint_options_defaults_match_flink() -> None:
    assert read() == CheckpointOptions(
        enabled=False,
        interval=math.inf,
        mode=CheckpointingMode.EXACTLY_ONCE,
        timeout=600.0,
        min_pause=0.0,
        max_concurrent=1,
        tolerable_failures=0,
        retention=Retention.NO_EXTERNALIZED_CHECKPOINTS,
        retained=1,
        compression=False,
        incremental=None,
        directory=None,
        savepoint_directory=None,
    )


def test_checkpoint_options_read_every_key() -> None:
    assert read(
        interval="1500 ms",
        mode="at-least-once",
        timeout="1 min",
        max_concurrent_checkpoints="3",
        tolerable_failed_checkpoints="2",
        externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
        num_retained="4",
        snapshot_compression="true",
        incremental="false",
        dir="file:///c",
        savepoint_dir="file:///s",
        storage="FileSystem",
    ) == CheckpointOptions(
        enabled=True,
        interval=1.5,
        mode=CheckpointingMode.AT_LEAST_ONCE,
        timeout=60.0,
        max_concurrent=3,
        tolerable_failures=2,
        retention=Retention.RETAIN_ON_CANCELLATION,
        retained=4,
        compression=True,
        incremental=False,
        directory="file:///c",
        savepoint_directory="file:///s",
    )


def test_checkpoint_options_min_pause_forbids_concurrent_checkpoints() -> None:
    paused = read(min_pause="250 ms", max_concurrent_checkpoints="3")
    assert (paused.min_pause, paused.max_concurrent) == (0.25, 1)
    assert read(min_pause="0", max_concurrent_checkpoints="3").max_concurrent == 3


OLD_KEYS = [
    ("dir", "state.checkpoints.dir", "file:///a", "directory", "file:///a"),
    ("dir", "state.backend.fs.checkpointdir", "file:///a", "directory", "file:///a"),
    ("savepoint-dir", "state.savepoints.dir", "file:///a", "savepoint_directory", "file:///a"),
    ("savepoint-dir", "savepoints.state.backend.fs.dir", "file:///a", "savepoint_directory", "file:///a"),
    ("num-retained", "state.checkpoints.num-retained", "5", "retained", 5),
    ("incremental", "state.backend.incremental", "true", "incremental", True),
]


@pytest.mark.parametrize(("new", "old", "text", "field", "value"), OLD_KEYS)
def test_checkpoint_options_read_deprecated_keys_as_fallback(
    new: str, old: str, text: str, field: str, value: Any
) -> None:
    config = Configuration().set_string(old, text)
    assert getattr(CheckpointOptions.read(config), field) == value
    other = {"5": "7", "true": "false"}.get(text, "file:///b")
    config.set_string(f"execution.checkpointing.{new}", other)
    assert getattr(CheckpointOptions.read(config), field) == {"7": 7, "false": False}.get(other, other)


WRONG = [
    ({"interval": "9 ms"}, "execution.checkpointing.interval is 9 ms: it must be at least 10 ms."),
    ({"interval": "0"}, "interval is 0 ms: it must be at least 10 ms"),
    ({"interval": "often"}, "execution.checkpointing.interval: 'often' is not a duration"),
    ({"timeout": "9"}, "timeout is 9 ms: it must be at least 10 ms"),
    ({"mode": "never"}, "mode is 'never': it must be one of EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE"),
    ({"max_concurrent_checkpoints": "0"}, "max-concurrent-checkpoints is 0: it must be at least 1"),
    ({"tolerable_failed_checkpoints": "-1"}, "tolerable-failed-checkpoints is -1: it must be at least 0"),
    ({"num_retained": "0"}, "num-retained is 0: it must be at least 1"),
    ({"num_retained": "few"}, "num-retained='few' must be a number"),
    ({"externalized_checkpoint_retention": "KEEP"}, "'KEEP': it must be one of DELETE_ON_CANCELLATION"),
    ({"incremental": "maybe"}, "must be true or false"),
    ({"dir": " "}, "dir is '': it must be a text that is not empty"),
    ({"storage": "my.Factory"}, "storage is my.Factory: it must be jobmanager or filesystem"),
    ({"storage": "filesystem"}, "storage is filesystem: also set execution.checkpointing.dir"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_checkpoint_options_reject_invalid_values(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        read(**settings)


def test_checkpoint_options_error_names_the_key_in_use() -> None:
    with pytest.raises(InvalidProgramError, match="^state.checkpoints.num-retained is 0"):
        CheckpointOptions.read(Configuration.from_dict({"state.checkpoints.num-retained": "0"}))


# --- CheckpointConfig


def test_enable_checkpointing_requires_an_interval(env: StreamExecutionEnvironment, config: CheckpointConfig) -> None:
    assert not config.is_checkpointing_enabled()
    assert (env.get_checkpoint_interval(), config.get_checkpoint_interval()) == (-1, -1)
    assert env.enable_checkpointing(1000) is env
    assert config.is_checkpointing_enabled()
    assert options(env).interval == 1.0
    config.disable_checkpointing()
    assert not env.get_checkpoint_config().is_checkpointing_enabled()
    assert not options(env).enabled


def test_checkpointing_mode_getters_and_setters(env: StreamExecutionEnvironment, config: CheckpointConfig) -> None:
    assert env.get_checkpointing_mode() == CheckpointConfig.DEFAULT_MODE == CheckpointingMode.EXACTLY_ONCE
    env.enable_checkpointing(1000, CheckpointingMode.AT_LEAST_ONCE)
    # Without a mode the setting is unchanged, as in Flink.
    env.enable_checkpointing(2000)
    assert env.get_checkpointing_mode() == config.get_checkpointing_mode() == CheckpointingMode.AT_LEAST_ONCE
    config.set_checkpointing_mode(CheckpointingMode.AT_MOST_ONCE)
    assert env.get_checkpointing_consistency_mode() == options(env).mode == CheckpointingMode.AT_MOST_ONCE
    assert [(m.name, m.value) for m in CheckpointingMode] == [
        ("EXACTLY_ONCE", 0),
        ("AT_LEAST_ONCE", 1),
        ("AT_MOST_ONCE", 2),
    ]


# A setter, its argument, the getter, its default, the option key.
METHODS: list[tuple[str, Any, str, Any, str]] = [
    ("set_checkpoint_interval", 30_000, "get_checkpoint_interval", -1, "interval"),
    ("set_checkpoint_timeout", 61_000, "get_checkpoint_timeout", 600_000, "timeout"),
    ("set_min_pause_between_checkpoints", 500, "get_min_pause_between_checkpoints", 0, "min-pause"),
    ("set_max_concurrent_checkpoints", 2, "get_max_concurrent_checkpoints", 1, "max-concurrent-checkpoints"),
    (
        "set_tolerable_checkpoint_failure_number",
        2,
        "get_tolerable_checkpoint_failure_number",
        0,
        "tolerable-failed-checkpoints",
    ),
    (
        "set_fail_on_checkpointing_errors",
        False,
        "is_fail_on_checkpointing_errors",
        True,
        "tolerable-failed-checkpoints",
    ),
    (
        "set_externalized_checkpoint_retention",
        Retention.RETAIN_ON_CANCELLATION,
        "get_externalized_checkpoint_retention",
        Retention.NO_EXTERNALIZED_CHECKPOINTS,
        "externalized-checkpoint-retention",
    ),
    ("enable_unaligned_checkpoints", True, "is_unaligned_checkpoints_enabled", False, "unaligned.enabled"),
    ("set_force_unaligned_checkpoints", True, "is_force_unaligned_checkpoints", False, "unaligned.forced"),
    (
        "set_aligned_checkpoint_timeout",
        Duration.of_minutes(1),
        "get_aligned_checkpoint_timeout",
        Duration.of_millis(0),
        "aligned-checkpoint-timeout",
    ),
    (
        "set_alignment_timeout",
        Duration.of_seconds(1),
        "get_alignment_timeout",
        Duration.of_millis(0),
        "aligned-checkpoint-timeout",
    ),
]


@pytest.mark.parametrize(("setter", "value", "getter", "before", "key"), METHODS)
def test_checkpoint_config_getters_and_setters(
    env: StreamExecutionEnvironment,
    config: CheckpointConfig,
    setter: str,
    value: Any,
    getter: str,
    before: Any,
    key: str,
) -> None:
    assert getattr(config, getter)() == before
    assert getattr(config, setter)(value) is config
    assert getattr(env.get_checkpoint_config(), getter)() == value
    assert env.get_configuration().key_set() == {f"execution.checkpointing.{key}"}


def test_checkpoint_config_setters_are_read_as_options(
    env: StreamExecutionEnvironment, config: CheckpointConfig
) -> None:
    env.enable_checkpointing(5000)
    config.set_checkpoint_timeout(61_000).set_max_concurrent_checkpoints(2).set_tolerable_checkpoint_failure_number(3)
    config.set_externalized_checkpoint_retention(Retention.DELETE_ON_CANCELLATION)
    env.set_default_savepoint_directory("file:///s")
    env.get_config().set_use_snapshot_compression(True)
    assert options(env) == CheckpointOptions(
        enabled=True,
        interval=5.0,
        timeout=61.0,
        max_concurrent=2,
        tolerable_failures=3,
        retention=Retention.DELETE_ON_CANCELLATION,
        compression=True,
        savepoint_directory="file:///s",
    )


def test_checkpoint_config_setter_overrides_a_deprecated_key() -> None:
    env = StreamExecutionEnvironment(Configuration.from_dict({"execution.checkpointing.unaligned": "true"}))
    assert env.is_unaligned_checkpoints_enabled()
    env.get_checkpoint_config().disable_unaligned_checkpoints()
    assert not env.is_unaligned_checkpoints_enabled()
    assert not env.is_force_unaligned_checkpoints()


def test_checkpoint_config_externalized_checkpoints_enabled(config: CheckpointConfig) -> None:
    assert not config.is_externalized_checkpoints_enabled()
    config.set_externalized_checkpoint_retention(Retention.DELETE_ON_CANCELLATION)
    assert config.is_externalized_checkpoints_enabled()


def test_checkpoint_config_ignored_in_flight_data(config: CheckpointConfig) -> None:
    assert config.get_checkpoint_id_of_ignored_in_flight_data() == -1
    config.set_checkpoint_id_of_ignored_in_flight_data(7)
    assert config.get_checkpoint_id_of_ignored_in_flight_data() == 7


REFUSED: list[tuple[Callable[[CheckpointConfig], Any], str]] = [
    (lambda c: c.set_checkpoint_interval(9), "interval is 9 ms: it must be at least 10 ms"),
    (lambda c: c.set_checkpoint_interval("10 s"), "interval is '10 s': it must be a whole number of milliseconds"),  # type: ignore[arg-type]
    (lambda c: c.set_checkpoint_timeout(9), "timeout is 9 ms: it must be at least 10 ms"),
    (lambda c: c.set_min_pause_between_checkpoints(-1), "min-pause is -1 ms: it must be at least 0 ms"),
    (lambda c: c.set_max_concurrent_checkpoints(0), "must be at least 1"),
    (lambda c: c.set_tolerable_checkpoint_failure_number(-1), "must be at least 0"),
    (lambda c: c.set_checkpointing_mode("EXACTLY_ONCE"), "mode is 'EXACTLY_ONCE': it must be one of EXACTLY_ONCE"),  # type: ignore[arg-type]
    (lambda c: c.enable_unaligned_checkpoints("yes"), "unaligned.enabled is 'yes': it must be True or False"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_checkpoint_config_setters_reject_invalid_values(
    env: StreamExecutionEnvironment, call: Callable[[CheckpointConfig], Any], message: str
) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        call(env.get_checkpoint_config())
    assert not env.get_configuration().key_set()


def test_checkpoint_config_deprecated_methods_name_their_replacement(config: CheckpointConfig) -> None:
    with pytest.warns(DeprecationWarning, match="use get_externalized_checkpoint_retention"):
        assert config.get_externalized_checkpoint_cleanup() is None
    with pytest.warns(DeprecationWarning, match="use set_externalized_checkpoint_retention") as caught:
        config.enable_externalized_checkpoints(Retention.RETAIN_ON_CANCELLATION)
    # The warning points at the line of the user's call.
    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning):
        assert config.get_externalized_checkpoint_cleanup() == Retention.RETAIN_ON_CANCELLATION
    with pytest.warns(DeprecationWarning, match="use set_externalized_checkpoint_retention"):
        config.set_externalized_checkpoint_cleanup(Retention.DELETE_ON_CANCELLATION)
    assert config.get_externalized_checkpoint_retention() == Retention.DELETE_ON_CANCELLATION
    with pytest.warns(DeprecationWarning, match="no effect"):
        config.set_prefer_checkpoint_for_recovery(True)
    assert config.is_prefer_checkpoint_for_recovery()


@pytest.mark.parametrize("module", [millstream.datastream, checkpoint_config, externalized_checkpoint_retention])
def test_externalized_checkpoint_cleanup_attribute_is_deprecated(module: Any) -> None:
    with pytest.warns(DeprecationWarning, match="use ExternalizedCheckpointRetention"):
        assert module.ExternalizedCheckpointCleanup is ExternalizedCheckpointRetention
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        module.Nothing  # noqa: B018


def test_externalized_checkpoint_cleanup_can_be_imported() -> None:
    with pytest.warns(DeprecationWarning):
        from millstream.datastream import ExternalizedCheckpointCleanup  # type: ignore[attr-defined]
    assert ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION is Retention.RETAIN_ON_CANCELLATION


# --- storages


def test_checkpoint_storage_of_files_sets_the_directories(
    env: StreamExecutionEnvironment, config: CheckpointConfig
) -> None:
    with pytest.warns(DeprecationWarning, match="set execution.checkpointing.dir"):
        config.set_checkpoint_storage(FileSystemCheckpointStorage("file:///var/c/"))
    env.set_default_savepoint_directory("file:///var/s")
    assert options(env).directory == "file:///var/c"
    with pytest.warns(DeprecationWarning):
        storage = config.get_checkpoint_storage()
    assert isinstance(storage, FileSystemCheckpointStorage)
    assert (storage.get_checkpoint_path(), storage.get_savepoint_path()) == ("file:///var/c", "file:///var/s")


def test_checkpoint_storage_accepts_a_directory(env: StreamExecutionEnvironment, config: CheckpointConfig) -> None:
    with pytest.warns(DeprecationWarning):
        assert config.get_checkpoint_storage() is None
    with pytest.warns(DeprecationWarning, match="set execution.checkpointing.dir"):
        config.set_checkpoint_storage_dir("/var/c")
    assert options(env).directory == "/var/c"


def test_checkpoint_storage_of_the_job_manager_sets_no_directory(
    env: StreamExecutionEnvironment, config: CheckpointConfig
) -> None:
    with pytest.warns(DeprecationWarning):
        config.set_checkpoint_storage(JobManagerCheckpointStorage())
    assert options(env).directory is None
    with pytest.warns(DeprecationWarning):
        assert isinstance(config.get_checkpoint_storage(), JobManagerCheckpointStorage)
    with pytest.warns(DeprecationWarning):
        config.set_checkpoint_storage(JobManagerCheckpointStorage("file:///c"))
    assert options(env).directory == "file:///c"


def test_checkpoint_storage_sizes() -> None:
    files = FileSystemCheckpointStorage("file:///c")
    assert (files.get_min_file_size_threshold(), files.get_write_buffer_size()) == (20480, 4096)
    files = FileSystemCheckpointStorage("/", 2048, 8192)
    assert (files.get_min_file_size_threshold(), files.get_write_buffer_size()) == (2048, 8192)
    assert files.get_checkpoint_path() == "/"
    memory = JobManagerCheckpointStorage(max_state_size=50_000)
    assert (memory.get_checkpoint_path(), memory.get_max_state_size()) == (None, 50_000)


NO_STORAGE: list[tuple[Callable[[], Any], str]] = [
    (lambda: FileSystemCheckpointStorage(""), "FileSystemCheckpointStorage needs a path, not ''"),
    (lambda: FileSystemCheckpointStorage(None), "needs a path, not None"),  # type: ignore[arg-type]
    (lambda: FileSystemCheckpointStorage("/c", 2**21), "threshold is 2097152: it must be from 0 to 1048576"),
    (lambda: JobManagerCheckpointStorage(max_state_size=0), "max_state_size is 0"),
    (lambda: CustomCheckpointStorage(object()), "use FileSystemCheckpointStorage"),
    (lambda: CustomStateBackend(object()), "use HashMapStateBackend"),
    (lambda: EmbeddedRocksDBStateBackend("yes"), "it must be True, False or None"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "message"), NO_STORAGE)
def test_checkpoint_storages_and_backends_reject_invalid_arguments(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        make()


@pytest.mark.parametrize("storage", ["file:///c", CheckpointStorage()])
def test_set_checkpoint_storage_rejects_other_objects(config: CheckpointConfig, storage: Any) -> None:
    with pytest.warns(DeprecationWarning), pytest.raises(InvalidProgramError, match="use FileSystemCheckpointStorage"):
        config.set_checkpoint_storage(storage)


# --- state backends


@pytest.mark.parametrize(
    ("backend", "name"), [(HashMapStateBackend(), "hashmap"), (EmbeddedRocksDBStateBackend(), "lmdb")]
)
def test_set_state_backend_accepts_backend_objects(
    env: StreamExecutionEnvironment, backend: StateBackend, name: str
) -> None:
    with pytest.warns(DeprecationWarning, match="state.backend.type"):
        assert env.get_state_backend() is None
    with pytest.warns(DeprecationWarning, match="set state.backend.type"):
        env.set_state_backend(backend)
    assert backend_of(env.get_configuration()) is Backend(name)
    with pytest.warns(DeprecationWarning):
        assert env.get_state_backend() is backend
    other, kind = ("rocksdb", EmbeddedRocksDBStateBackend) if name == "hashmap" else ("hashmap", HashMapStateBackend)
    env.configure(Configuration.from_dict({"state.backend.type": other}))
    with pytest.warns(DeprecationWarning):
        assert type(env.get_state_backend()) is kind


@pytest.mark.parametrize("incremental", [True, False, None])
def test_rocksdb_backend_sets_incremental_checkpoints(
    env: StreamExecutionEnvironment, incremental: bool | None
) -> None:
    with pytest.warns(DeprecationWarning):
        env.set_state_backend(EmbeddedRocksDBStateBackend(incremental))
    assert options(env).incremental is incremental


def test_rocksdb_backend_settings() -> None:
    backend = EmbeddedRocksDBStateBackend()
    assert not backend.is_incremental_checkpoints_enabled()
    assert (backend.get_db_storage_paths(), backend.get_number_of_transfer_threads()) == ([], 4)
    assert (backend.get_predefined_options(), backend.get_options()) == (PredefinedOptions.DEFAULT, None)
    backend.set_db_storage_paths("/a", "/b")
    backend.set_number_of_transfer_threads(8)
    backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    backend.set_options("a.Factory")
    assert (backend.get_db_storage_paths(), backend.get_number_of_transfer_threads()) == (["/a", "/b"], 8)
    assert (backend.get_predefined_options(), backend.get_options()) == (
        PredefinedOptions.FLASH_SSD_OPTIMIZED,
        "a.Factory",
    )
    with pytest.raises(InvalidProgramError, match="give at least 1"):
        backend.set_number_of_transfer_threads(0)
    # Flink's defaults.
    backend.set_db_storage_paths("file:/tmp/a", "file:///tmp/b", "file://host/c/", "/d//e/")
    assert backend.get_db_storage_paths() == ["/tmp/a", "/tmp/b", "/c", "/d/e"]
    for path in ("a", "file:a", "hdfs:///a"):
        with pytest.raises(InvalidProgramError, match=rf"set_db_storage_paths\(\): '{path}' is"):
            backend.set_db_storage_paths(path)


OLD_BACKENDS: list[tuple[Callable[[], StateBackend], str, str, str | None, str | None]] = [
    (lambda: MemoryStateBackend(), "HashMapStateBackend", "hashmap", None, None),
    (lambda: MemoryStateBackend("/c", "/s"), "HashMapStateBackend", "hashmap", "/c", "/s"),
    (lambda: FsStateBackend("file:///c/"), "execution.checkpointing.dir", "hashmap", "file:///c", None),
    (lambda: FsStateBackend("file:///c", "/s"), "execution.checkpointing.dir", "hashmap", "file:///c", "/s"),
    (lambda: RocksDBStateBackend("file:///c"), "EmbeddedRocksDBStateBackend", "lmdb", "file:///c", None),
]


@pytest.mark.parametrize(("make", "replacement", "name", "checkpoints", "savepoints"), OLD_BACKENDS)
def test_deprecated_state_backends_set_name_and_directories(
    env: StreamExecutionEnvironment,
    make: Callable[[], StateBackend],
    replacement: str,
    name: str,
    checkpoints: str | None,
    savepoints: str | None,
) -> None:
    with pytest.warns(DeprecationWarning, match=replacement):
        backend = make()
    with pytest.warns(DeprecationWarning):
        env.set_state_backend(backend)
    assert backend_of(env.get_configuration()) is Backend(name)
    assert (options(env).directory, options(env).savepoint_directory) == (checkpoints, savepoints)


def test_deprecated_rocksdb_backend_wraps_another_backend(env: StreamExecutionEnvironment) -> None:
    with pytest.warns(DeprecationWarning):
        files = FsStateBackend("file:///c")
        env.set_state_backend(RocksDBStateBackend(checkpoint_stream_backend=files))
    assert (backend_of(env.get_configuration()), options(env).directory) == (Backend.LMDB, "file:///c")
    with pytest.warns(DeprecationWarning), pytest.raises(InvalidProgramError, match="needs a checkpoint_data_uri"):
        RocksDBStateBackend()


def test_deprecated_state_backends_sizes() -> None:
    with pytest.warns(DeprecationWarning):
        memory, files, disk = MemoryStateBackend(max_state_size=7), FsStateBackend("/c"), RocksDBStateBackend("/c")
    assert (memory.get_max_state_size(), memory.is_using_asynchronous_snapshots()) == (7, True)
    assert (files.get_checkpoint_path(), files.get_write_buffer_size()) == ("/c", 4096)
    assert disk.is_ttl_compaction_filter_enabled()
    disk.disable_ttl_compaction_filter()
    assert not disk.is_ttl_compaction_filter_enabled()
    disk.set_number_of_transfering_threads(2)
    assert disk.get_number_of_transfering_threads() == 2
    with pytest.warns(DeprecationWarning):
        assert isinstance(disk.get_checkpoint_backend(), FsStateBackend)


@pytest.mark.parametrize("backend", ["rocksdb", StateBackend()])
def test_set_state_backend_rejects_other_objects(env: StreamExecutionEnvironment, backend: Any) -> None:
    with pytest.warns(DeprecationWarning), pytest.raises(InvalidProgramError, match="HashMapStateBackend"):
        env.set_state_backend(backend)


def test_changelog_state_backend_setting_is_stored(env: StreamExecutionEnvironment) -> None:
    assert env.is_changelog_state_backend_enabled() is None
    assert env.enable_changelog_state_backend(False).is_changelog_state_backend_enabled() is False
    env.enable_changelog_state_backend(True)
    assert env.get_configuration().get_boolean("state.changelog.enabled", False)


def test_default_savepoint_directory_getter_and_setter(env: StreamExecutionEnvironment) -> None:
    assert env.get_default_savepoint_directory() is None
    assert env.set_default_savepoint_directory("file:///s").get_default_savepoint_directory() == "file:///s"
    with pytest.raises(InvalidProgramError, match="savepoint-dir is '': it must be a text"):
        env.set_default_savepoint_directory("")
