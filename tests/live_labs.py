"""Labs as a reader has them in JupyterLab: a server of its own, a notebook that has run, a hand on the sliders."""

from __future__ import annotations

import ast
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from labsrc import labs
from labsrc.labs import static
from labsrc.labs.controls import Slider

SERVER_SECONDS, ANSWER_SECONDS = 60, 20
# Places of a slider's handle, as shares of its length.
SHARES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)

PLACES = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
PLACES += ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")

# ---------------------------------------------------------------- a server


@contextmanager
def serving(folder: Path) -> Iterator[Callable[[str], str]]:
    """JupyterLab with settings of its own; it yields what makes the address of a notebook in `folder`.

    It runs in `folder` / ".jupyter" and reads nobody's settings. It asks no other host for news or updates.
    """
    own = folder / ".jupyter"
    own.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    places = {name: str(own / name.lower()) for name in PLACES}
    options = [f"--port={port}", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    options += ["--no-browser", "--allow-root", "--expose-app-in-browser", "--LabApp.news_url=None"]
    options += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    with (own / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **places},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/api?token={token}", server, own / "log")
            yield lambda name: f"http://127.0.0.1:{port}/lab/tree/{name}?token={token}&reset"
        finally:
            server.terminate()  # it shuts its kernels down first
            server.wait(SERVER_SECONDS)


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + SERVER_SECONDS
    while server.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab does not answer; it said:\n{log.read_text('utf-8', errors='replace')[-2000:]}")


# ---------------------------------------------------------------- notebooks


def notebooks_with_labs(folder: Path, into: Path) -> dict[str, list[str]]:
    """Copies into `into` of the notebooks that show labs, and the labs of each: every lab once.

    A lab that no notebook shows comes in one written here.
    """
    left, found = set(labs.LABS), {}
    for path in sorted(folder.glob("*.ipynb")):
        cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        if shown := [name for name in sorted(left) if any(f"labs.{name}(" in source for source in cells)]:
            found[path.name] = shown
            left -= set(shown)
            shutil.copy(path, into)
    if left:
        found["scratch.ipynb"] = sorted(left)
        write_notebook(into / "scratch.ipynb", sorted(left))
    return found


def write_notebook(path: Path, names: list[str]) -> None:
    """A notebook with one cell for each lab."""
    cells = [
        nbformat.v4.new_code_cell(source) for source in ["from labsrc import labs", *map("labs.{}()".format, names)]
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)


RUN_ALL = """async () => {
  const { context, sessionContext, content } = jupyterapp.shell.currentWidget;
  await context.ready;
  await sessionContext.ready;
  await jupyterapp.commands.execute("notebook:run-all-cells");
  const outputs = content.widgets.flatMap((cell) => cell.model.outputs?.toJSON() ?? []);
  return outputs.filter((one) => one.output_type === "error").map((one) => `${one.ename}: ${one.evalue}`);
}"""


def run_notebook(page: Any, address: str) -> list[str]:
    """Open a notebook and run all its cells until the kernel rests; return the errors of its cells."""
    page.goto(address)
    opened = "() => window.jupyterapp?.shell?.currentWidget?.content?.widgets?.length > 0"
    page.wait_for_function(opened, timeout=1e3 * SERVER_SECONDS)
    errors = page.evaluate(RUN_ALL)
    at_rest(page)
    return errors


def at_rest(page: Any) -> None:
    """Wait until the kernel has nothing more to do."""
    page.wait_for_function("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'")


# ---------------------------------------------------------------- a hand on a lab

FIND = """async (name) => {
  const { content } = jupyterapp.shell.currentWidget;
  const index = content.widgets.findIndex((cell) => cell.model.sharedModel.source.includes(`labs.${name}(`));
  await content.scrollToItem(index, "start");
  content.widgets[index].node.setAttribute("data-shows", name);
}"""
# One answer is the time from an input event to the frame in which the new drawing stands; a message posted from a
# frame's callback is read once that frame has been drawn. Every frame is looked at: the panels must stand in it,
# filled and in their place.
WATCH = """(card) => {
  const box = () => {
    const { top, height } = card.querySelector(".lab-panels")?.getBoundingClientRect() ?? {};
    return [top - card.getBoundingClientRect().top, height];
  };
  const holder = card.querySelector(".lab-panels").parentElement, place = box();
  const watch = (window.watch = { answers: [], frames: 0, faults: 0, since: null });
  watch.await = (kind) => {
    const begin = () => { watch.since ??= performance.now(); };
    watch.since = null;
    addEventListener(kind, begin, { capture: true, once: true });
  };
  new MutationObserver(() => {
    const since = watch.since;
    watch.since = null;
    if (since === null) return;
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => watch.answers.push(performance.now() - since);
      port2.postMessage(null);
    });
  }).observe(holder, { childList: true, subtree: true, characterData: true, attributes: true });
  const look = () => {
    const stays = box().every((at, index) => Math.abs(at - place[index]) < 1);
    watch.frames += 1;
    if (!(stays && holder.isConnected && holder.textContent.trim())) watch.faults += 1;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""
EXECUTE = """async (expression) => {
  const { kernel } = jupyterapp.shell.currentWidget.sessionContext.session;
  const reply = await kernel.requestExecute({ code: "", silent: true, user_expressions: { it: expression } }).done;
  const { it } = reply.content.user_expressions;
  return it.data ? it.data["text/plain"] : Promise.reject(new Error(`${it.ename}: ${it.evalue}`));
}"""
# Set through a template as the widget sets it, so that both are written in the browser's way.
SHOWS = """([name, drawing]) => {
  const fresh = document.createElement("div");
  fresh.innerHTML = drawing;
  return document.querySelector(`[data-shows=${name}] .lab-panels`).parentElement.innerHTML === fresh.innerHTML;
}"""


def telling_slider(name: str) -> tuple[int, Slider]:
    """A lab's first slider of those that draw the most, and its place among the lab's sliders.

    A micro-batch of 5 is drawn as one of 8 while the batch has two completions: no answer could be waited for.
    """
    lab = labs.LABS[name]
    sliders = [one for one in lab.controls if isinstance(one, Slider)]

    def drawings(slider: Slider) -> int:
        low, high = slider.position(slider.minimum), slider.position(slider.maximum)
        views = [lab(**{slider.key: slider.at(low + share * (high - low))}) for share in SHARES]
        return len({static.panels(lab, view.state, view.result) for view in views})

    return max(enumerate(sliders), key=lambda one: drawings(one[1]))


@dataclass
class LiveLab:
    """The lab `name` in a notebook that has run."""

    page: Any
    name: str

    def __post_init__(self) -> None:
        self.page.evaluate(FIND, self.name)
        self.card = self.page.locator(f"[data-shows={self.name}] .lab-card.jupyter-widgets")
        index, self.slider = telling_slider(self.name)
        self.handle = self.card.locator("[role=slider]").nth(index)
        self.line = self.card.locator(".noUi-base").nth(index)
        self.handle.scroll_into_view_if_needed()
        self.card.evaluate(WATCH)

    def state(self) -> dict[str, Any]:
        """The lab's settings as the kernel has them."""
        at_rest(self.page)
        shown = f"[one for one in Out.values() if getattr(getattr(one, 'lab', None), 'name', '') == {self.name!r}]"
        found = self.page.evaluate(EXECUTE, f"__import__('json').dumps({shown}[-1].state)")
        return json.loads(ast.literal_eval(found))

    def shows_what_its_state_computes(self) -> bool:
        """Whether its drawing is the one that labsrc makes here of the kernel's settings."""
        view = labs.LABS[self.name](**self.state())
        return self.page.evaluate(SHOWS, [self.name, static.panels(view.lab, view.state, view.result)])

    def press(self, key: str) -> float:
        """Press a key on the slider's handle: milliseconds until another drawing stands."""
        self.handle.focus()
        return self._answer("keydown", lambda: self.page.keyboard.press(key))

    def drag(self, share: float) -> float:
        """Drag the handle to a share of the slider's length: milliseconds until another drawing stands."""
        start, line = self.handle.bounding_box(), self.line.bounding_box()
        y, mouse = start["y"] + start["height"] / 2, self.page.mouse
        mouse.move(start["x"] + start["width"] / 2, y)
        mouse.down()
        if self.slider.lazy:  # such a slider is answered when it is let go
            mouse.move(line["x"] + share * line["width"], y)
            return self._answer("mouseup", mouse.up)
        answer = self._answer("mousemove", lambda: mouse.move(line["x"] + share * line["width"], y))
        mouse.up()
        return answer

    def _answer(self, kind: str, act: Callable[[], Any]) -> float:
        before = self.page.evaluate("(kind) => { watch.await(kind); return watch.answers.length; }", kind)
        act()
        self.page.wait_for_function("(n) => watch.answers.length > n", arg=before, timeout=1e3 * ANSWER_SECONDS)
        return self.page.evaluate("(n) => watch.answers[n]", before)

    def frames(self) -> tuple[int, int]:
        """Frames drawn since the lab was found, and those in which its drawing was missing, or out of place."""
        return tuple(self.page.evaluate("() => [watch.frames, watch.faults]"))

    def has_output_widget(self) -> bool:
        """Whether anything of the lab goes through an Output widget."""
        return self.card.locator(".jp-OutputArea, .jupyter-widget-output, .widget-output").count() > 0
