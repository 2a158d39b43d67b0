"""SlotSharingGroup: operators of different groups never share a slot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.unsupported import JAVA, missing_function

__all__ = ["MemorySize", "SlotSharingGroup"]


@dataclass(frozen=True, order=True)
class MemorySize:
    """A number of bytes.

    Example:
        >>> MemorySize.of_mebi_bytes(3).get_bytes()
        3145728
    """

    bytes_size: int

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Return a number of mebibytes.

        Example:
            >>> MemorySize.of_mebi_bytes(3).get_bytes()
            3145728
        """
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        """Return the number of bytes.

        Example:
            >>> MemorySize.of_mebi_bytes(3).get_bytes()
            3145728
        """
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """Return the number of full kibibytes.

        Example:
            >>> MemorySize.of_mebi_bytes(3).get_kibi_bytes()
            3072
        """
        return self.bytes_size >> 10

    def get_mebi_bytes(self) -> int:
        """Return the number of full mebibytes.

        Example:
            >>> MemorySize(3_500_000).get_mebi_bytes()
            3
        """
        return self.bytes_size >> 20

    def get_gibi_bytes(self) -> int:
        """Return the number of full gibibytes.

        Example:
            >>> MemorySize.of_mebi_bytes(2048).get_gibi_bytes()
            2
        """
        return self.bytes_size >> 30

    def get_tebi_bytes(self) -> int:
        """Return the number of full tebibytes.

        Example:
            >>> MemorySize.of_mebi_bytes(3 << 20).get_tebi_bytes()
            3
        """
        return self.bytes_size >> 40

    get_java_memory_size = missing_function("get_java_memory_size", JAVA)

    def __str__(self) -> str:
        return f"{self.bytes_size} bytes"


@fast_dataclass
class SlotSharingGroup:
    """A named group of operators whose subtasks may run in one slot.

    Resources are stored without effect: the operating system schedules memory and cores.

    Example:
        >>> group = SlotSharingGroup.builder("heavy").set_cpu_cores(2.0).set_task_heap_memory_mb(512).build()
        >>> group.get_name(), group.get_cpu_cores(), group.get_task_heap_memory().get_mebi_bytes()
        ('heavy', 2.0, 512)
    """

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict, hash=False)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Begin a group of this name."""
        return SlotSharingGroup.Builder(name)

    def get_name(self) -> str:
        """Return the group's name."""
        return self.name

    def get_cpu_cores(self) -> float | None:
        """Return the requested cores."""
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """Return the requested heap memory."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Return the requested off-heap memory."""
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """Return the requested managed memory."""
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Return the requested external resources."""
        return dict(self.external_resources)

    get_java_slot_sharing_group = missing_function("get_java_slot_sharing_group", JAVA)

    class Builder:
        """Builds a SlotSharingGroup."""

        def __init__(self, name: str) -> None:
            self._group = SlotSharingGroup(name)

        def _with(self, **changes: Value) -> SlotSharingGroup.Builder:
            self._group = replace(self._group, **changes)
            return self

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Request CPU cores; more than 0."""
            if cpu_cores <= 0:
                raise InvalidProgramError(f"The cpu cores should be positive, not {cpu_cores}.")
            return self._with(cpu_cores=cpu_cores)

        def set_task_heap_memory(self, task_heap_memory: MemorySize | str) -> SlotSharingGroup.Builder:
            """Request heap memory; more than 0."""
            size = _size(task_heap_memory)
            if size.bytes_size <= 0:
                raise InvalidProgramError(f"The task heap memory should be positive, not {size}.")
            return self._with(task_heap_memory=size)

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Request megabytes of heap memory; more than 0."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize | str) -> SlotSharingGroup.Builder:
            """Request off-heap memory."""
            return self._with(task_off_heap_memory=_size(task_off_heap_memory))

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Request megabytes of off-heap memory."""
            return self._with(task_off_heap_memory=MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize | str) -> SlotSharingGroup.Builder:
            """Request managed memory."""
            return self._with(managed_memory=_size(managed_memory))

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Request megabytes of managed memory."""
            return self._with(managed_memory=MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Request an external resource, such as GPUs."""
            return self._with(external_resources={**self._group.external_resources, name: value})

        def build(self) -> SlotSharingGroup:
            """Return the group: without resources, or at least with cores and heap memory."""
            group = self._group
            if group == SlotSharingGroup(group.name):
                return group
            if group.cpu_cores is None or group.task_heap_memory is None:
                raise InvalidProgramError(
                    "The cpu cores and task heap memory are required when specifying the resource of a slot sharing "
                    "group. You need to explicitly configure them with positive value."
                )
            zero = MemorySize(0)
            return replace(
                group,
                task_off_heap_memory=group.task_off_heap_memory or zero,
                managed_memory=group.managed_memory or zero,
            )


_UNITS = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40}


def _size(size: MemorySize | str) -> MemorySize:
    """Accept a MemorySize, or text such as "512 mb"."""
    if isinstance(size, MemorySize):
        return size
    number = size.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = size[len(number) :].lower()
    if not number.strip().isdigit() or unit not in _UNITS:
        raise InvalidProgramError(f"{size!r} is not a memory size; write for example '512 mb' or '1 gb'.")
    return MemorySize(int(number) << _UNITS[unit])
