"""Build the files of a release from a commit: python -m tests.release.dist [--commit HEAD] [--out dist].

The source distribution and the wheel are the same bytes whenever and wherever a commit is built: they are built from
the commit's files, in the commit's time, with pinned tools. The SBOM lists the packages that the wheel installs today,
so it differs when one of them has a new release.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from bench.venvs import venv

from tests.support.paths import ROOT
from tests.upgrade.commits import extract

SUMS = "SHA256SUMS"
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()))
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release.dist", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--commit", default="HEAD", help="the commit to build (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where to write (default: dist)")
    options = parser.parse_args()
    tools = venv("release")
    if tools is None:
        return 1
    shutil.rmtree(options.out, ignore_errors=True)
    sdist, wheel = build(tools, options.commit, options.out)
    subprocess.run([tools, "-m", "twine", "check", "--strict", sdist, wheel], check=True)
    sbom = write_sbom(tools, wheel, options.out)
    (options.out / SUMS).write_text(checksums([sdist, wheel, sbom]))
    print((options.out / SUMS).read_text(), end="", flush=True)
    return 0


def commit_time(commit: str) -> str:
    """Return the commit's time in seconds since 1970."""
    command = ["git", "-C", str(ROOT), "show", "--no-patch", "--format=%ct", commit]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def build(tools: Path, commit: str, out: Path) -> tuple[Path, Path]:
    """Build the source distribution of a commit, and the wheel from it; return both."""
    with tempfile.TemporaryDirectory(prefix="millstream-dist-") as directory:
        source = extract(commit, Path(directory) / "millstream")
        command = [str(tools), "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
        environment = os.environ | {"SOURCE_DATE_EPOCH": commit_time(commit)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"The build of {commit} failed:\n{done.stdout}{done.stderr}")
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def write_sbom(tools: Path, wheel: Path, out: Path) -> Path:
    """Install the wheel into an empty venv and write its packages as CycloneDX."""
    with tempfile.TemporaryDirectory(prefix="millstream-sbom-") as directory:
        # Without pip: it is not a dependency.
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
        python = Path(directory) / "bin" / "python"
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, str(wheel)], check=True)
        cyclonedx = [
            str(tools.parent / "cyclonedx-py"),
            "environment",
            "--output-reproducible",
            "--output-format",
            "JSON",
        ]
        sbom = json.loads(subprocess.run([*cyclonedx, str(python)], capture_output=True, check=True).stdout)
    text = json.dumps(described(sbom, wheel), indent=2, sort_keys=True) + "\n"
    subprocess.run([tools, "-c", VALIDATE], input=text, text=True, check=True)
    target = out / f"{wheel.name.removesuffix('-py3-none-any.whl')}.cdx.json"
    target.write_text(text)
    return target


def described(sbom: dict[str, Any], wheel: Path) -> dict[str, Any]:
    """Make the wheel the subject of the SBOM, with its checksum, instead of one component of an environment."""
    (subject,) = [c for c in sbom["components"] if c["name"] == "millstream"]
    components = [c for c in sbom["components"] if c is not subject]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    # pip records the path of the wheel on this machine.
    del subject["externalReferences"]
    subject |= {"purl": f"pkg:pypi/millstream@{subject['version']}", "hashes": [{"alg": "SHA-256", "content": digest}]}
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps([subject, components], sort_keys=True))
    metadata = sbom["metadata"] | {"component": subject}
    return sbom | {"serialNumber": f"urn:uuid:{serial}", "metadata": metadata, "components": components}


def checksums(files: list[Path]) -> str:
    """Return the lines that `sha256sum --check` reads."""
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files))


if __name__ == "__main__":
    sys.exit(main())
