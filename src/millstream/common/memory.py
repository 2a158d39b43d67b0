"""Flink's memory model: how options divide the memory of a task manager and of the job manager.

Pure arithmetic; `millstream.common.memory_on_spark` maps the parts to Spark.
"""

from __future__ import annotations

import re
import struct
from decimal import Decimal

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass

_UNITS = {
    "b": ("b", "bytes"),
    "k": ("k", "kb", "kibibytes"),
    "m": ("m", "mb", "mebibytes"),
    "g": ("g", "gb", "gibibytes"),
    "t": ("t", "tb", "tebibytes"),
}
_FACTORS: dict[str, int] = {name: 1024**power for power, names in enumerate(_UNITS.values()) for name in names}
_SIZE = re.compile(r"(\d+)\s*([a-z]*)")
_LARGEST = (1 << 63) - 1


def parse_size(text: str, key: str) -> int:
    """Return the bytes of a size in Flink's notation.

    Example:
        >>> parse_size("64 mb", "key"), parse_size("1g", "key"), parse_size("42", "key")
        (67108864, 1073741824, 42)
    """
    match = _SIZE.fullmatch(text.strip().lower())
    factor = _FACTORS.get(match.group(2) or "b") if match else None
    if match is None or factor is None or int(match.group(1)) * factor > _LARGEST:
        raise InvalidProgramError(f"{key} is {text!r}: it must be a size such as 512 mb or 2g.")
    return int(match.group(1)) * factor


def readable(size: int) -> str:
    """Format a size as Flink does.

    Example:
        >>> readable(1536 << 20), readable(100)
        ('1.500gb (1610612736 bytes)', '100 bytes')
    """
    unit = next((u for u in ("tb", "gb", "mb", "kb") if size > _FACTORS[u]), None)
    return f"{size} bytes" if unit is None else f"{size / _FACTORS[unit]:.3f}{unit} ({size} bytes)"


@fast_dataclass
class Share:
    """A fraction of a larger part, within bounds."""

    name: str
    min_size: int
    max_size: int
    fraction: float

    def of(self, whole: int) -> int:
        """Return the size as a fraction of the whole."""
        return self._bounded(_times(whole, self.fraction))

    def complement(self, rest: int) -> int:
        """Return the part whose fraction of the total leaves the given rest."""
        return self._bounded(_times(rest, self.fraction / (1 - self.fraction)))

    def check(self, size: int) -> None:
        """Refuse a size that is out of bounds."""
        if not self.min_size <= size <= self.max_size:
            raise InvalidProgramError(
                f"Derived {self.name} size ({readable(size)}) is not in configured {self.name} range "
                f"[{readable(self.min_size)}, {readable(self.max_size)}]."
            )

    def _bounded(self, size: int) -> int:
        return min(max(size, self.min_size), self.max_size)


def _times(size: int, factor: float) -> int:
    # In decimal: a tenth of 640 is 64.
    return int(Decimal(size) * Decimal(repr(factor)))


@fast_dataclass
class JavaMemory:
    """JVM memory outside Total Flink Memory: metaspace and overhead."""

    metaspace: int
    overhead: int


@fast_dataclass
class TaskManagerMemory:
    """The parts of a task manager's memory, in bytes."""

    framework_heap: int
    framework_off_heap: int
    task_heap: int
    task_off_heap: int
    network: int
    managed: int
    java: JavaMemory

    @property
    def flink(self) -> int:
        """Total Flink Memory."""
        heap = self.framework_heap + self.task_heap
        return heap + self.framework_off_heap + self.task_off_heap + self.network + self.managed

    @property
    def process(self) -> int:
        """Total Process Memory."""
        return self.flink + self.java.metaspace + self.java.overhead


@fast_dataclass
class JobManagerMemory:
    """The parts of the job manager's memory, in bytes."""

    heap: int
    off_heap: int
    java: JavaMemory

    @property
    def flink(self) -> int:
        """Total Flink Memory."""
        return self.heap + self.off_heap

    @property
    def process(self) -> int:
        """Total Process Memory."""
        return self.flink + self.java.metaspace + self.java.overhead


class _Options:
    """Reads the memory options of one kind of process."""

    def __init__(self, config: Configuration, prefix: str, defaults: dict[str, str], required: tuple[str, ...]) -> None:
        self._config = config
        self._prefix = prefix
        self._defaults = defaults
        # With these, all other parts can be derived.
        self.required = required

    def key(self, name: str) -> str:
        return f"{self._prefix}.{name}"

    def has(self, name: str) -> bool:
        return any(self._config.contains_key(key) for key in (self.key(name), *_OLD_KEYS.get(self.key(name), ())))

    def size(self, name: str) -> int:
        return parse_size(self._text(name), self.key(name))

    def share(self, words: str, name: str) -> Share:
        """Return a part given as a fraction with bounds."""
        return self._share(words, name, self.size(f"{name}.min"), self.size(f"{name}.max"))

    def unbounded(self, words: str, name: str) -> Share:
        return self._share(words, name, 0, _LARGEST)

    def _share(self, words: str, name: str, min_size: int, max_size: int) -> Share:
        key, text = self.key(f"{name}.fraction"), self._text(f"{name}.fraction")
        try:
            # Flink reads single precision.
            fraction: float = struct.unpack("f", struct.pack("f", float(text)))[0]
        except (ValueError, OverflowError):
            raise InvalidProgramError(f"{key} is {text!r}: it must be a number from 0 to below 1.") from None
        if not 0 <= fraction < 1 or min_size > max_size:
            raise InvalidProgramError(
                f"Inconsistently configured {key} ({text}) and its min ({readable(min_size)}), max "
                f"({readable(max_size)}) value: the fraction must be from 0 to below 1, and the min not above the max."
            )
        return Share(words, min_size, max_size, fraction)

    def java_of_process(self, process: int) -> JavaMemory:
        """Return the JVM's part of Total Process Memory."""
        java = JavaMemory(self.size("jvm-metaspace.size"), self._overhead().of(process))
        if java.metaspace + java.overhead > process:
            raise InvalidProgramError(
                f"Sum of configured JVM Metaspace ({readable(java.metaspace)}) and JVM Overhead "
                f"({readable(java.overhead)}) exceed configured Total Process Memory ({readable(process)})."
            )
        return java

    def java_outside(self, flink: int) -> JavaMemory:
        """Return the JVM's memory outside Total Flink Memory."""
        metaspace, overhead = self.size("jvm-metaspace.size"), self._overhead()
        if not self.has("process.size"):
            return JavaMemory(metaspace, overhead.complement(flink + metaspace))
        process = self.size("process.size")
        left = process - flink - metaspace
        if left < 0:
            raise InvalidProgramError(
                f"Sum of configured Total Flink Memory ({readable(flink)}) and JVM Metaspace ({readable(metaspace)}) "
                f"exceed configured Total Process Memory ({readable(process)})."
            )
        overhead.check(left)
        return JavaMemory(metaspace, left)

    def _overhead(self) -> Share:
        return self.share("JVM Overhead", "jvm-overhead")

    def missing_size_error(self) -> InvalidProgramError:
        parts = " and ".join(map(self.key, self.required))
        return InvalidProgramError(
            f"Either required fine-grained memory ({parts}), or Total Flink Memory size ({self.key('flink.size')}), or "
            f"Total Process Memory size ({self.key('process.size')}) need to be configured explicitly."
        )

    def _text(self, name: str) -> str:
        for key in (self.key(name), *_OLD_KEYS.get(self.key(name), ())):
            if self._config.contains_key(key):
                return self._config.get_string(key, "")
        return self._defaults[name]


_OLD_KEYS = {
    "taskmanager.memory.managed.size": ("taskmanager.memory.size",),
    "taskmanager.memory.network.fraction": ("taskmanager.network.memory.fraction",),
    "taskmanager.memory.network.min": ("taskmanager.network.memory.min",),
    "taskmanager.memory.network.max": ("taskmanager.network.memory.max",),
}
_OVERHEAD = {"jvm-overhead.min": "192mb", "jvm-overhead.max": "1gb", "jvm-overhead.fraction": "0.1"}
_TASK_MANAGER = {
    **_OVERHEAD,
    "jvm-metaspace.size": "256mb",
    "framework.heap.size": "128mb",
    "framework.off-heap.size": "128mb",
    "task.off-heap.size": "0",
    "network.fraction": "0.1",
    "network.min": "64mb",
    "network.max": str(_LARGEST),
    "managed.fraction": "0.4",
}
_JOB_MANAGER = {**_OVERHEAD, "jvm-metaspace.size": "256mb", "off-heap.size": "128mb"}


def task_manager_options(config: Configuration) -> _Options:
    return _Options(config, "taskmanager.memory", _TASK_MANAGER, ("task.heap.size", "managed.size"))


def task_manager_memory(config: Configuration) -> TaskManagerMemory:
    """Divide a task manager's memory as Flink does; refuse contradicting options."""
    options = task_manager_options(config)
    if all(map(options.has, options.required)):
        parts = _from_parts(options)
    elif options.has("flink.size"):
        parts = _from_flink(options, options.size("flink.size"))
    elif options.has("process.size"):
        java = options.java_of_process(options.size("process.size"))
        return _with_java(_from_flink(options, options.size("process.size") - java.metaspace - java.overhead), java)
    else:
        raise options.missing_size_error()
    return _with_java(parts, options.java_outside(sum(parts.values())))


def _with_java(parts: dict[str, int], java: JavaMemory) -> TaskManagerMemory:
    return TaskManagerMemory(**parts, java=java)


_WORDS = {
    "framework_heap": "Framework Heap Memory",
    "framework_off_heap": "Framework Off-Heap Memory",
    "task_heap": "Task Heap Memory",
    "task_off_heap": "Task Off-Heap Memory",
    "managed": "Managed Memory",
    "network": "Network Memory",
}


def _fixed_parts(options: _Options) -> dict[str, int]:
    return {
        "framework_heap": options.size("framework.heap.size"),
        "framework_off_heap": options.size("framework.off-heap.size"),
        "task_off_heap": options.size("task.off-heap.size"),
    }


def _from_parts(options: _Options) -> dict[str, int]:
    parts = {
        **_fixed_parts(options),
        "task_heap": options.size("task.heap.size"),
        "managed": options.size("managed.size"),
    }
    if options.has("flink.size"):
        return {**parts, "network": _network_left(options, parts, options.size("flink.size"))}
    return {**parts, "network": options.share("Network Memory", "network").complement(sum(parts.values()))}


def _from_flink(options: _Options, flink: int) -> dict[str, int]:
    parts = {**_fixed_parts(options), "managed": _managed(options, flink)}
    if options.has("task.heap.size"):
        parts["task_heap"] = options.size("task.heap.size")
        return {**parts, "network": _network_left(options, parts, flink)}
    parts["network"] = options.share("Network Memory", "network").of(flink)
    return {**parts, "task_heap": _left(parts, flink)}


def _managed(options: _Options, flink: int) -> int:
    if options.has("managed.size"):
        return options.size("managed.size")
    return options.unbounded("Managed Memory", "managed").of(flink)


def _network_left(options: _Options, parts: dict[str, int], flink: int) -> int:
    """Return the rest for the network, which has bounds of its own."""
    left = _left(parts, flink)
    try:
        options.share("Network Memory", "network").check(left)
    except InvalidProgramError as e:
        raise InvalidProgramError(
            "If Total Flink, Task Heap and (or) Managed Memory sizes are explicitly configured then the Network Memory "
            f"is the rest of the Total Flink Memory, which is out of bounds: {e}"
        ) from None
    return left


def _left(parts: dict[str, int], flink: int) -> int:
    if sum(parts.values()) > flink:
        listed = ", ".join(f"{words} ({readable(parts[name])})" for name, words in _WORDS.items() if name in parts)
        raise InvalidProgramError(
            f"Sum of configured {listed} exceed configured Total Flink Memory ({readable(flink)})."
        )
    return flink - sum(parts.values())


def job_manager_options(config: Configuration) -> _Options:
    return _Options(config, "jobmanager.memory", _JOB_MANAGER, ("heap.size",))


def job_manager_memory(config: Configuration) -> JobManagerMemory:
    """Divide the job manager's memory as Flink does; refuse contradicting options."""
    options = job_manager_options(config)
    off_heap = options.size("off-heap.size")
    if options.has("heap.size"):
        heap = options.size("heap.size")
        off_heap = _off_heap(options, heap, off_heap)
        return JobManagerMemory(heap, off_heap, options.java_outside(heap + off_heap))
    if options.has("flink.size"):
        flink = options.size("flink.size")
        return JobManagerMemory(_heap(flink, off_heap), off_heap, options.java_outside(flink))
    if options.has("process.size"):
        process = options.size("process.size")
        java = options.java_of_process(process)
        return JobManagerMemory(_heap(process - java.metaspace - java.overhead, off_heap), off_heap, java)
    raise options.missing_size_error()


def _off_heap(options: _Options, heap: int, off_heap: int) -> int:
    """Return the off-heap size for a given heap: the rest of the total, if that is set."""
    if not options.has("flink.size"):
        return off_heap
    flink = options.size("flink.size")
    if heap > flink or (options.has("off-heap.size") and heap + off_heap != flink):
        raise InvalidProgramError(
            f"Sum of the configured JVM Heap Memory ({readable(heap)}) and the configured or default Off-heap Memory "
            f"({readable(off_heap)}) is not the configured Total Flink Memory ({readable(flink)}): configure only one "
            f"of {options.key('heap.size')} and {options.key('flink.size')}."
        )
    return flink - heap


def _heap(flink: int, off_heap: int) -> int:
    if flink <= off_heap:
        raise InvalidProgramError(
            f"The configured Total Flink Memory ({readable(flink)}) is less than the configured Off-heap Memory "
            f"({readable(off_heap)})."
        )
    return flink - off_heap
