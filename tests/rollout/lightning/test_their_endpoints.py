"""Agent Lightning's own endpoint tests, against ``agentgym gateway``.

They come from a checkout of theirs, which ``AGENTLIGHTNING_SOURCE`` names::

    git clone https://github.com/microsoft/agent-lightning
    AGENTLIGHTNING_SOURCE=$PWD/agent-lightning uv run pytest -n 0 -m sweep \\
        tests/rollout/lightning/test_their_endpoints.py
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = os.environ.get("AGENTLIGHTNING_SOURCE")


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.skipif(not SOURCE, reason="AGENTLIGHTNING_SOURCE names no checkout")
def test_agent_lightnings_endpoint_tests_pass(tmp_path: Path) -> None:
    theirs = Path(SOURCE or "") / "tests"
    ours = tmp_path / "tests"  # apart from their package, so that the one here is used
    shutil.copytree(theirs / "server", ours / "server")
    shutil.copy(theirs / "__init__.py", ours)
    plugin = tmp_path / "against_gateway.py"
    shutil.copy(Path(__file__).with_name("against_gateway.py"), plugin)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    command += ["-c", os.devnull, "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, "-p", "against_gateway", "-v", ours / "server"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    passed = re.findall(r"^tests\S+ PASSED", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout
    assert len(passed) >= 13, done.stdout
