"""Settings and fixtures of the whole suite: no silent skips, the built site, and a real browser."""

from __future__ import annotations

import os

# Tensors as small as ours run faster on one thread than on many; notebook kernels inherit this.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.util
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent

# The same examples on every run, and no deadlines: a slow machine is not a wrong one.
hypothesis.settings.register_profile("labsrc", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("labsrc")


def pytest_configure(config: pytest.Config) -> None:
    """Measure coverage in the unit tests only: they must reach every line by themselves.

    nbval would measure inside the notebooks' kernels too wherever `--cov` is given, and with a bare `--cov` it
    waits for each kernel until it times out. pytest-cov has read its own copy of the option by now.
    """
    config.option.cov_source = None


# ---------------------------------------------------------------- skips

REQUIRE_ALL = "LABSRC_REQUIRE_ALL"


def skipped_reports(config: pytest.Config) -> list[Any]:
    """Reports of the tests that were skipped, where the environment asks for all of them to run."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    # A worker of `-n` has no reporter: the process that started it counts the skips of all.
    if reporter is None or os.environ.get(REQUIRE_ALL, "0") in ("", "0"):
        return []
    return reporter.stats.get("skipped", [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With LABSRC_REQUIRE_ALL=1 a skipped test is a failure: a check that did not run proves nothing."""
    if skipped_reports(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the skips that make the run fail."""
    reports = skipped_reports(config)
    if reports:
        terminalreporter.section(f"{REQUIRE_ALL} is set, so these {len(reports)} skips fail the run", red=True)
        for report in reports:
            terminalreporter.line(f"{report.nodeid}: {report.longrepr[2]}")


# ---------------------------------------------------------------- the built site


def build_site(out: Path) -> Path:
    """Build the site below `out`, as `make book` does: warnings are errors. Return its folder."""
    program = shutil.which("jupyter-book", path=sysconfig.get_path("scripts"))
    assert program, "jupyter-book is not installed beside this Python: pip install -r requirements.txt"
    command = [program, "build", str(ROOT), "--path-output", str(out)]
    command += ["--warningiserror", "--keep-going", "--nitpick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the site does not build:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    (out / "done").touch()
    return out / "_build" / "html"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of the built site: built afresh, or the one just built that LABSRC_SITE names."""
    if given := os.environ.get("LABSRC_SITE"):
        folder = Path(given).resolve()
        assert (folder / "index.html").is_file(), f"LABSRC_SITE={given} holds no built site"
        return folder
    own = tmp_path_factory.getbasetemp()
    out = (own if worker_id == "master" else own.parent) / "site"
    # One worker builds; the others wait for it and read what it built.
    with FileLock(f"{out}.lock"):
        built = out / "_build" / "html"
        return built if (out / "done").exists() else build_site(out)


def load_serve() -> ModuleType:
    """The module book/serve.py, which is a program and not part of labsrc."""
    spec = importlib.util.spec_from_file_location("serve", ROOT / "book" / "serve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def serve() -> ModuleType:
    """The module book/serve.py."""
    return load_serve()


@pytest.fixture(scope="session")
def site_address(site: Path, serve: ModuleType) -> Iterator[str]:
    """The address, ending in a slash, at which the built site is served on this machine."""
    with serve.serving(site) as address:
        yield address


# ---------------------------------------------------------------- the browser


def find_chromium() -> str | None:
    """Path of a Chromium: LABSRC_CHROMIUM, else one on the path, else the one playwright installed."""
    from playwright.sync_api import sync_playwright

    if given := os.environ.get("LABSRC_CHROMIUM"):
        return given
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"):
        if found := shutil.which(name):
            return found
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium.

    One for each test module and not for the session: while it is open its event loop counts as running,
    which the notebook kernels started later must not find.
    """
    from playwright.sync_api import sync_playwright

    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium found: install one, run `playwright install chromium`, or set LABSRC_CHROMIUM")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=arguments)
        yield chromium
        chromium.close()


@dataclass
class Visit:
    """An open page, with what it asked of other hosts and the errors it logged since it was opened."""

    page: Any
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Open `address` in a fresh profile and wait until it is loaded and its maths is set.

    Call visit(address, width=1280, height=800, dark=False, offline=False, **context options); the pages are
    closed when the test ends.
    """
    contexts = []

    def open_page(address: str, *, width: int = 1280, height: int = 800, dark: bool = False, **options: Any) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", **options
        )
        contexts.append(context)
        seen = Visit(context.new_page())
        home = "file://" if address.startswith("file://") else "/".join(address.split("/")[:3]) + "/"
        seen.page.on("request", lambda request: note_outside(seen, request.url, home))
        seen.page.on("pageerror", lambda error: seen.errors.append(f"uncaught: {error}"))
        seen.page.on("console", lambda message: note_error(seen, message))
        seen.page.goto(address, wait_until="load")
        seen.page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
        return seen

    yield open_page
    for context in contexts:
        context.close()


def note_outside(seen: Visit, url: str, home: str) -> None:
    """Remember a request that leaves the site."""
    if not url.startswith((home, "data:", "blob:", "about:")):
        seen.outside.append(url)


def note_error(seen: Visit, message: Any) -> None:
    """Remember an error or a warning in the console."""
    if message.type in ("error", "warning"):
        seen.errors.append(f"{message.type}: {message.text}")
