"""Numbers and scales of the labs, by hand; tests/test_labs_parity.py holds the page to the same."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tolerances import RTOL

from labsrc.labs import cells, formats, palette, scales


@pytest.mark.parametrize(
    ("value", "fmt", "shown"),
    [
        (0.75, ".3f", "0.750"),
        (-0.75, ".2f", "−0.75"),
        (0.0, ".3f", "0.000"),
        (-0.0, ".3f", "0.000"),
        (0.0005, ".3f", "0.001"),
        (0.0004999, ".3f", "5×10⁻⁴"),
        (0.00012345, ".3f", "1.2×10⁻⁴"),
        (-3.2e-53, ".3f", "−3.2×10⁻⁵³"),
        (0.125, ".2f", "0.13"),
        (0.375, ".2f", "0.38"),
        (-0.125, ".2f", "−0.13"),
        (1234567.0, ".1f", "1.2×10⁶"),
        (999999.0, ".1f", "999999.0"),
        (1e-17, "~.3f", "0.000"),
        (-1e-17, "~.3f", "0.000"),
        (2e-12, "~.3f", "2×10⁻¹²"),
        (1.5, "+.1f", "+1.5"),
        (-1.5, "+.1f", "−1.5"),
        (0.0, "+.1f", "0.0"),
        (math.inf, ".3f", "∞"),
        (-math.inf, "d", "−∞"),
        (math.nan, ".3f", "–"),
        (None, ".3f", "–"),
        (0.6, ".3g", "0.6"),
        (0.0999999, ".3g", "0.1"),
        (0.00012, ".3g", "0.00012"),
        (0.00009876, ".3g", "9.88×10⁻⁵"),
        (123456.0, ".3g", "123000"),
        (1e6, ".1g", "1×10⁶"),
        (0.0, ".3g", "0"),
        (100.0, ".1g", "100"),
        (12800, "d", "12\u202f800"),
        (1234567, "d", "1\u202f234\u202f567"),
        (999, "d", "999"),
        (2.5, "d", "3"),
        (0.748590599, ".1%", "74.9%"),
        (0.0, ".0%", "0%"),
        (1e-9, ".1%", "1×10⁻⁹"),
        (2, "letter", "c"),
        ("mean", "text", "mean"),
        ([0.2, 3.0, -1], "py", "[0.2, 3, -1]"),
        (True, "py", "True"),
    ],
)
def test_a_number_is_written(value, fmt, shown):
    assert formats.format_value(value, fmt) == shown


@pytest.mark.parametrize("fmt", ["", "3f", ".3", ".3e", ".10f", "f.3", ".3f ", "~"])
def test_what_is_no_format_is_refused_by_name(fmt):
    with pytest.raises(ValueError, match=r"^fmt must be a number format .* got "):
        formats.format_value(1.0, fmt)


@given(st.floats(1e-11, 9e5))
def test_three_significant_digits_lie_within_half_a_unit_of_the_third(value):
    digits, exponent = formats.significant(value, 3)
    assert abs(int(digits) * 10.0 ** (exponent - 2) - value) <= 0.5 * 10.0 ** (exponent - 2) * (1 + RTOL)
    assert len(digits) == 3 and digits[0] != "0"


def test_a_template_takes_keys_from_the_first_scope_that_has_them():
    assert formats.fill("{a:.1f}, {b[1]:d}, {c}", {"a": 1.0, "b": [1, 2]}, {"a": 9.0, "c": "x"}) == "1.0, 2, x"
    assert formats.fields("{a:.1f} and {b[1]:d}") == ["a", "b"]
    with pytest.raises(ValueError, match="template must be a number format"):
        formats.fields("{a:.1z}")


@pytest.mark.parametrize(
    ("text", "number"),
    [(" 0.5 ", 0.5), ("−1", -1.0), ("-1", -1.0), ("+2.", 2.0), (".5", 0.5), ("1e-3", 1e-3), ("2E2", 200.0)]
    + [(bad, None) for bad in ("", "-", ".", "1,5", "1 2", "0x1", "nan", "inf", "1e", "1_0", "abc", "--1", "1e9999")],
)
def test_typed_text_is_read_as(text, number):
    assert formats.parse_number(text) == number


@pytest.mark.parametrize(
    ("low", "high", "ends", "ticks"),
    [
        (0.0, 0.693, (0.0, 0.8), [0.0, 0.2, 0.4, 0.6, 0.8]),
        (-0.3, 2.1, (-0.5, 2.5), [0.0, 1.0, 2.0]),
        (0.0, 1000.0, (0.0, 1000.0), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]),
        (5.0, 5.0, (0.0, 5.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        (0.0, 0.0, (0.0, 1.0), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
    ],
)
def test_a_scale_has_round_ends_and_ticks(low, high, ends, ticks):
    assert scales.round_domain([low, high, math.inf, math.nan]) == pytest.approx(ends, rel=RTOL)
    assert scales.round_ticks(*ends) == pytest.approx(ticks, rel=RTOL)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6), st.booleans())
def test_round_ends_hold_the_data_with_few_ticks(values, around_zero):
    low, high = scales.round_domain(values, around_zero=around_zero)
    slack = 1e-9 * max(1.0, *map(abs, values))
    assert low - slack <= min(values) and max(values) <= high + slack and low < high
    assert 2 <= len(scales.round_ticks(low, high)) <= 8


def test_a_bar_ends_within_its_scale_whatever_its_value():
    ends = [scales.share(value, -1.0, 3.0) for value in (-1.0, 0.0, 1.0, 3.0, 9.0, -9.0, math.inf, -math.inf, math.nan)]
    assert ends == [0.0, 0.25, 0.5, 1.0, 1.0, 0.0, 1.0, 0.0, 0.25]


def test_a_log_axis_has_its_powers_of_ten_and_needs_positive_ends():
    assert scales.log_ticks(0.01, 100.0) == [0.01, 0.1, 1.0, 10.0, 100.0]
    scale = scales.Scale(0.01, 100.0, (), "", log=True)
    assert [scale(v) for v in (0.01, 1.0, 100.0)] == pytest.approx([0.0, 0.5, 1.0], abs=1e-12)
    assert scale(0.0) < 0


@pytest.mark.parametrize(
    ("value", "integer", "problem"),
    [
        (0.5, False, ""),
        (None, False, "Type a number from −1 to 1000."),
        (-1.5, False, "Type a number from −1 to 1000."),
        (0.5, True, "Type a whole number from −1 to 1000."),
        (3.0, True, ""),
    ],
)
def test_a_cell_says_what_it_takes(value, integer, problem):
    class Bounds:
        minimum, maximum = -1, 1000

    Bounds.integer = integer
    assert cells.cell_problem(value, Bounds) == problem


# ---------------------------------------------------------------- colours


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """WCAG 2.2's contrast ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


GROUNDS = [(palette.LIGHT, palette.LIGHT_GROUND), (palette.DARK, palette.DARK_GROUND)]


@pytest.mark.parametrize(("roles", "ground"), GROUNDS, ids=["light", "dark"])
def test_text_and_marks_stand_out_as_wcag_aa_asks(roles, ground):
    for ink in ("ink", "muted"):
        assert min(contrast(ground[ink], ground[surface]) for surface in ("card", "well")) >= 4.5, ink
    for ink in ("accent", "alarm"):
        assert contrast(ground[ink], ground["card"]) >= 4.5, ink
    assert contrast(ground["field"], ground["card"]) >= 3
    for role, color in roles.items():
        assert min(contrast(color, ground[surface]) for surface in ("card", "well")) >= 3, role
        # A curve's label has its role's colour; the reference's, a grey, is written in muted ink.
        assert role in ("reference", "part6") or contrast(color, ground["card"]) >= 4.5, role


def test_both_grounds_have_a_colour_for_every_role():
    assert palette.LIGHT.keys() == palette.DARK.keys() and palette.LIGHT_GROUND.keys() == palette.DARK_GROUND.keys()


# What each kind of colour blindness makes of linear red, green, blue (Viénot, Brettel & Mollon 1999, full deficiency).
BLIND = {
    "protan": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "deutan": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
}


def lab_color(color, matrix=((1, 0, 0), (0, 1, 0), (0, 0, 1))):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    r, g, b = (sum(w * c for w, c in zip(row, linear, strict=True)) for row in matrix)
    x, y, z = (
        0.4124 * r + 0.3576 * g + 0.1805 * b,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        0.0193 * r + 0.1192 * g + 0.9505 * b,
    )
    f = [t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x / 0.9505, y, z / 1.089)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


@pytest.mark.parametrize("blindness", BLIND)
@pytest.mark.parametrize("roles", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_reference_policy_old_and_optimum_differ_for_colour_blind_readers(roles, blindness):
    drawn_together = ("reference", "policy", "old", "optimum")
    colors = [lab_color(roles[role], BLIND[blindness]) for role in drawn_together]
    gaps = {(drawn_together[i], drawn_together[j]): math.dist(colors[i], colors[j]) for i in range(4) for j in range(i)}
    # 2.3 is a difference one can notice side by side (CIE 1976); ten is plain to see.
    assert min(gaps.values()) > 10, gaps
