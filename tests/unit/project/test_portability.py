"""Only millstream.operating_system uses what Linux alone has. `make lint` also checks the types for macOS."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "millstream"
# Attributes of the standard library, and functions of the C library, that other systems lack.
OF_LINUX = frozenset(
    [
        "epoll",
        "EPOLLIN",
        "EPOLLOUT",
        "EPOLLRDHUP",
        "prctl",
        "fallocate",
        "memfd_create",
        "eventfd",
        "timerfd_create",
        "signalfd",
        "inotify_init",
        "pidfd_open",
        "pidfd_send_signal",
        "sched_getaffinity",
        "sched_setaffinity",
        "posix_fadvise",
        "fdatasync",
        "splice",
        "copy_file_range",
        "setns",
        "unshare",
        "sigtimedwait",
        "sigwaitinfo",
        "pthread_getcpuclockid",
        "malloc_trim",
        "TCP_INFO",
        "TCP_KEEPIDLE",
        "TCP_USER_TIMEOUT",
        "TCP_QUICKACK",
        "SO_PEERCRED",
        "MSG_CMSG_CLOEXEC",
        "SOCK_CLOEXEC",
        "O_TMPFILE",
        "O_DIRECT",
        "O_PATH",
        "F_SETPIPE_SZ",
        "pipe2",
    ]
)


def uses_of_linux(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of what only Linux has, and of decisions by the system."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if is_text and ("/proc/" in node.value or "/sys/" in node.value or "/dev/shm" in node.value):  # type: ignore[attr-defined]
            yield node.lineno, ast.unparse(node)  # type: ignore[attr-defined]
        elif isinstance(node, ast.Attribute) and (node.attr in OF_LINUX or ast.unparse(node) == "sys.platform"):
            yield node.lineno, ast.unparse(node)


def test_uses_of_linux_are_found() -> None:
    source = (
        '"""Reads /proc/self."""\nselect.epoll()\nopen(f"/proc/{pid}/stat")\nif sys.platform == "linux":\n    pass\n'
    )
    assert [line for line, _ in uses_of_linux(ast.parse(source))] == [2, 4, 3]


def test_only_operating_system_uses_what_linux_alone_has() -> None:
    found = {
        f"{path.relative_to(SOURCE)}:{line}: {text}"
        for path in SOURCE.rglob("*.py")
        if path.name != "operating_system.py"
        for line, text in uses_of_linux(ast.parse(path.read_text()))
    }
    assert found == set()
