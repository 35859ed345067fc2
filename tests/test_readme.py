"""The README's example runs as pasted and prints what its comments say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_example(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    code = code.replace("/tmp/lakebed-trips", str(tmp_path / "trips"))
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    promised = re.findall(r"^# (.*)$", code, re.MULTILINE)
    assert len(promised) == 3
    for line, expected in zip(result.stdout.splitlines(), promised, strict=False):
        assert line == expected
    assert "partition" in result.stdout


def test_local_links_lead_somewhere() -> None:
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
