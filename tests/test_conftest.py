"""The suite's own rule about skips: run in a small suite of its own, because it decides the exit status."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest

def test_that_runs():
    pass

@pytest.mark.skipif(SKIP, reason="nothing to see")
def test_that_may_not_run():
    pass
"""


def run_suite(folder: Path, *options: str, skip: bool, require_all: str) -> subprocess.CompletedProcess:
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "test_it.py").write_text(SUITE.replace("SKIP", str(skip)))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)]
    environment = {**os.environ, "LABSRC_REQUIRE_ALL": require_all}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(("skip", "require_all", "status"), [(True, "1", 1), (True, "0", 0), (False, "1", 0)], ids=str)
def test_a_skip_fails_the_run_only_where_all_are_required(tmp_path, skip, require_all, status, workers):
    done = run_suite(tmp_path, "-n", workers, skip=skip, require_all=require_all)
    assert done.returncode == status, done.stdout
    assert ("test_that_may_not_run: Skipped: nothing to see" in done.stdout) == (status == 1)
