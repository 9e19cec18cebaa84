"""A lab in a real JupyterLab: moved by hand, answered by the kernel.

`benchmarks/jupyterlab.py` does the same to every lab, in the chapters that show them.
"""

import live_labs
import pytest

from labsrc import labs

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("jupyterlab")
    live_labs.write_notebook(folder / "one.ipynb", ["tilt"])
    with live_labs.serving(folder) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        assert live_labs.run_notebook(page, address("one.ipynb")) == []
        yield page
        page.close()


def test_a_slider_moved_by_keyboard_and_mouse_is_answered_by_the_kernel_without_a_flicker(page):
    lab = live_labs.LiveLab(page, "tilt")
    assert lab.state() == labs.tilt().state and lab.shows_what_its_state_computes()
    seen = []
    for move in (lambda: lab.press("Home"), lambda: lab.press("End"), lambda: lab.drag(0.25), lambda: lab.drag(0.8)):
        assert move() > 0
        assert lab.shows_what_its_state_computes()
        seen.append(lab.state()["beta"])
    low, high = lab.slider.minimum, lab.slider.maximum
    assert seen[:2] == pytest.approx([low, high])
    # Four decades from 0.01: a quarter of the way is 0.1.
    assert seen[2:] == pytest.approx([0.1, low * 10**3.2], rel=0.1)
    frames, faulty = lab.frames()
    assert frames > 10 and faulty == 0
    assert not lab.has_output_widget()


def test_a_flicker_and_a_drawing_of_other_settings_would_be_seen(page):
    lab = live_labs.LiveLab(page, "tilt")
    page.evaluate("() => { document.querySelector('.lab-panels').style.display = 'none'; }")
    page.wait_for_function("() => watch.faults > 0")
    page.evaluate("() => { document.querySelector('.lab-panels').style.display = ''; }")
    page.evaluate("() => document.querySelector('.lab-panels svg').remove()")
    assert not lab.shows_what_its_state_computes()


def test_the_notebooks_show_every_lab_once_and_what_none_shows_is_written(tmp_path):
    (tmp_path / "chapters").mkdir()
    live_labs.write_notebook(tmp_path / "chapters" / "a.ipynb", ["tilt", "dpo"])
    live_labs.write_notebook(tmp_path / "chapters" / "b.ipynb", ["tilt"])
    found = live_labs.notebooks_with_labs(tmp_path / "chapters", tmp_path)
    assert found == {"a.ipynb": ["dpo", "tilt"], "scratch.ipynb": sorted(set(labs.LABS) - {"tilt", "dpo"})}
    assert (tmp_path / "scratch.ipynb").is_file() and not (tmp_path / "b.ipynb").exists()


def test_the_slider_taken_draws_something_else_at_most_places():
    # The batch has two completions: all micro-batches from two on are drawn alike.
    assert live_labs.telling_slider("aggregation")[1].key == "max_length"
    assert [live_labs.telling_slider(name)[0] for name in ("tilt", "bandit", "aggregation")] == [0, 0, 1]
