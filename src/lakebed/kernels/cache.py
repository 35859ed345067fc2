"""The folder of compiled code on this host, and whether it is complete.

The folder is named by a hash of what the code depends on: all modules of this package, the versions of Python, numba,
llvmlite and numpy, and the processor. So stale code is never found. A file `ready` in it, written last, says that every
function is there. Because code is executed from the folder, only this user or root may be able to write there.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lakebed.private_folder import NotPrivateError, check_trusted_folder, make_private_folder

FOLDER_VARIABLE = "NUMBA_CACHE_DIR"
_MARKER = "ready"
_LIBRARIES = ("numba", "llvmlite", "numpy")
_PROCESSOR_BYTES_MAX = 1 << 16


def find_ready() -> str | None:
    """The folder with all compiled code of this version, if there is one; does not load numba."""
    return next((folder for folder in _folders() if _is_ready(folder)), None)


def make_folder() -> str | None:
    """The first writable folder for compiled code, created if missing; None if there is none."""
    for folder in _folders():
        try:
            make_private_folder(folder)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        return folder
    return None


def mark_ready(folder: str) -> None:
    """Mark the folder as complete."""
    path = os.path.join(folder, _MARKER)
    with open(f"{path}.{os.getpid()}", "x") as file:
        file.write(f"{sys.version}\n")
    os.replace(file.name, path)


def discard(folder: str) -> None:
    """Mark the folder as incomplete, so that its code is compiled again."""
    with suppress(OSError):
        os.unlink(os.path.join(folder, _MARKER))


@cache
def key() -> str:
    """A hash of everything that compiled code depends on."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(f"{path.relative_to(Path(__file__).parent)}\0".encode() + path.read_bytes())
    for fact in (sys.version, platform.machine(), _processor(), *map(_version, _LIBRARIES)):
        digest.update(f"\0{fact}".encode())
    return digest.hexdigest()


def _folders() -> Iterator[str]:
    """Candidate folders for compiled code, best first."""
    roots = [os.environ.get(FOLDER_VARIABLE), _home(), os.path.join(tempfile.gettempdir(), f"lakebed-{os.getuid()}")]
    for root in roots:
        if root:
            yield os.path.join(os.path.abspath(root), "lakebed-kernels", key())


def _home() -> str | None:
    if os.environ.get("XDG_CACHE_HOME"):
        return os.environ["XDG_CACHE_HOME"]
    home = os.path.expanduser("~")
    return os.path.join(home, ".cache") if os.path.isabs(home) else None


def _is_ready(folder: str) -> bool:
    if not os.path.exists(os.path.join(folder, _MARKER)):
        return False
    try:
        check_trusted_folder(folder)
    except NotPrivateError:
        return False
    return True


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"


def _processor() -> str:
    """The model and the features of the processor, which compiled code may use."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            first = file.read(_PROCESSOR_BYTES_MAX).decode(errors="replace").partition("\n\n")[0]
    except OSError:
        return platform.processor()
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU part")
    facts = (line.partition(":") for line in first.splitlines())
    return "\n".join(f"{name.strip()}:{value}" for name, _, value in facts if name.strip() in wanted)
