"""The drawings: what is on the Axes is what was passed in, in the colour of its role."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from labsrc import plots


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_one_panel_is_bare_and_several_are_an_array():
    _, ax = plots.panels()
    figure, axes = plots.panels(3)
    assert ax.figure is not figure
    assert axes.shape == (3,)


def test_style_does_not_leak_into_matplotlib():
    before = dict(plt.rcParams)
    plots.panels()
    after = dict(plt.rcParams)
    assert {key for key in before if before[key] != after[key]} <= {"backend"}


def test_bars_have_the_heights_and_the_colours_of_their_roles():
    _, ax = plots.panels()
    policies = {"reference": [0.2, 0.8], "optimum": [0.6, 0.4]}
    assert plots.policy_bars(ax, ["a", "b"], policies, optimum="p*") is ax
    heights = {container.get_label(): [bar.get_height() for bar in container] for container in ax.containers}
    assert heights == {"reference": [0.2, 0.8], "p*": [0.6, 0.4]}
    colors = [to_hex(container[0].get_facecolor()) for container in ax.containers]
    assert colors == [plots.ROLE_COLORS["reference"], plots.ROLE_COLORS["optimum"]]
    assert [text.get_text() for text in ax.texts] == ["0.200", "0.800", "0.600", "0.400"]


def test_lines_carry_the_style_of_their_role():
    _, ax = plots.panels()
    plots.lines(ax, [0, 1], {"mine": [1, 2], "yours": [2, 1]}, roles={"mine": "proxy", "yours": "truth"})
    assert [line.get_linestyle() for line in ax.lines] == [plots.ROLE_LINES["proxy"], plots.ROLE_LINES["truth"]]
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [2, 1])


def test_series_differ_in_hue_and_in_style_and_are_refused_where_they_would_not():
    _, ax = plots.panels()
    assert plots.series(ax, [0, 1], {name: [0, index] for index, name in enumerate("abcde")}) is ax
    # A line with dashes of its own says "--" when asked for its style, so the styles are compared in the table.
    assert [to_hex(line.get_color()) for line in ax.lines] == [color for color, _ in plots.SERIES]
    assert len({color for color, _ in plots.SERIES}) == len({style for _, style in plots.SERIES}) == 5
    np.testing.assert_array_equal(ax.lines[3].get_ydata(), [0, 3])
    with pytest.raises(ValueError, match=r"curves must be at most 5.*got 6"):
        plots.series(ax, [0], {name: [0] for name in "abcdef"})


def test_bands_run_from_the_lowest_run_to_the_highest_round_the_mean():
    _, ax = plots.panels()
    assert plots.bands(ax, [0, 1], {"a": [[0.0, 1.0], [2.0, 5.0]], "b": [[7.0, 8.0]]}) is ax
    np.testing.assert_array_equal([line.get_ydata() for line in ax.lines], [[1, 3], [7, 8]])
    band = ax.collections[0].get_paths()[0].vertices
    assert {tuple(vertex) for vertex in band} == {(0, 0), (0, 2), (1, 1), (1, 5)}
    assert to_hex(ax.collections[1].get_facecolor()) == ax.lines[1].get_color()


def test_points_are_named_beside_their_mark():
    _, ax = plots.panels()
    plots.points(ax, [0, 1], [2, 3], role="sampled", label="best of n", names=["n = 1", "n = 2"])
    assert [(text.get_text(), text.xy) for text in ax.texts] == [("n = 1", (0, 2)), ("n = 2", (1, 3))]


def test_each_action_has_a_line_of_its_own_named_at_its_end():
    _, ax = plots.panels()
    plots.action_paths(ax, [0.1, 1.0], [[0.3, 0.7], [0.4, 0.6]], ["a", "b"])
    assert ax.get_xscale() == "log"
    assert [(text.get_text(), text.xy) for text in ax.texts] == [("a", (1.0, 0.4)), ("b", (1.0, 0.6))]
    assert len({line.get_linestyle() for line in ax.lines}) == 2


def test_a_dashboard_has_a_panel_a_curve_counts_from_one_and_leaves_gaps():
    figure, panels = plots.dashboard({"a": [1.0, None, 3.0], "b": [0.0], "c": [2.0]}, columns=2)
    assert [ax.get_title() for ax in panels] == ["a", "b", "c"]
    x, y = panels[0].lines[0].get_data()
    assert list(x) == [1, 2, 3] and y[0] == 1 and y[1] != y[1] and y[2] == 3
    assert [ax.get_visible() for ax in figure.axes] == [True, True, True, False]
    with pytest.raises(ValueError, match="curves must name at least one"):
        plots.dashboard({})
