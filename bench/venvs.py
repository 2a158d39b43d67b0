"""Venvs of other systems in a cache folder, created on first use by the benchmark and the tests against PyFlink."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("MILLSTREAM_BENCH_CACHE", Path.home() / ".cache" / "millstream-bench"))


def existing_venv(peer: str) -> Path | None:
    """Return the peer's interpreter if its venv is ready."""
    return CACHE / peer / "bin" / "python" if (CACHE / peer / ".ready").exists() else None


def venv(peer: str) -> Path | None:
    """Return the peer's interpreter; create its venv if needed. None if that is impossible."""
    folder = CACHE / peer
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        print(f"  setting up {peer} in {folder} ...", flush=True)
        try:
            if not python.exists():
                subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            needs = HERE / "peers" / "requirements" / f"{peer}.txt"
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", str(needs)], check=True)
            ready.touch()
        except subprocess.CalledProcessError as e:
            print(f"  {peer} cannot be set up: {e}", flush=True)
            return None
    return python
