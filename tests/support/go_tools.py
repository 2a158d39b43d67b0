"""Tools that are Go programs, in the cache folder of the venvs: python -m tests.support.go_tools installs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.venvs import CACHE

MODULES = {
    "actionlint": "github.com/rhysd/actionlint/cmd/actionlint@v1.7.10",
    "kustomize": "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1",
}
FOLDER = CACHE / "go"


def go_tool(name: str) -> Path | None:
    """Return a tool's path if it is installed here or on the PATH."""
    found = shutil.which(name, path=f"{FOLDER}{os.pathsep}{os.environ.get('PATH', '')}")
    return Path(found) if found else None


def main() -> int:
    missing = [module for name, module in MODULES.items() if go_tool(name) is None]
    if missing and shutil.which("go") is None:
        print(f"There is no Go to install {', '.join(missing)}: install Debian's golang.", file=sys.stderr)
        return 1
    for module in missing:
        print(f"  installing {module} in {FOLDER} ...", flush=True)
        subprocess.run(["go", "install", module], env=os.environ | {"GOBIN": str(FOLDER)}, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
