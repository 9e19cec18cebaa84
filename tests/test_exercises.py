"""The checker of the exercises: right answers pass, slips are named, nothing a reader types raises."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from labsrc.labs.exercises import Choice, Code, Number, check, exercises, hint

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
ALL = exercises()
RUBBISH = ["abc", float("nan"), float("inf"), True, [1, 2], {}, object(), np.array([1.0, 2.0]), 10**400]


@pytest.mark.parametrize("key", ALL)
def test_no_answer_yet_is_neither_right_nor_wrong(key):
    assert check(key, None).state == "waiting"
    assert check(key, ...).state == "waiting"


@pytest.mark.parametrize("key", ALL)
@pytest.mark.parametrize("answer", RUBBISH, ids=lambda answer: repr(answer)[:20])
def test_rubbish_is_wrong_with_a_message_and_never_raises(key, answer):
    verdict = check(key, answer)
    assert verdict.state == "wrong"
    assert len(verdict.message) > 20


@pytest.mark.parametrize("key", [key for key, exercise in ALL.items() if isinstance(exercise, Number)])
def test_the_right_number_passes_rounded_to_four_digits_and_as_a_tensor(key):
    answer = ALL[key].answer()
    assert check(key, answer).state == "right"
    assert check(key, float(f"{answer:.4g}")).state == "right"
    assert check(key, torch.tensor(answer, dtype=torch.float64)).state == "right"
    assert check(key, np.float64(answer)).state == "right"


@pytest.mark.parametrize("key", [key for key, exercise in ALL.items() if isinstance(exercise, Number)])
def test_a_number_that_is_off_is_wrong_and_a_known_slip_gets_its_own_message(key):
    exercise = ALL[key]
    assert check(key, exercise.answer() * 1.02 + 0.01).state == "wrong"
    for slip, message in exercise.mistakes:
        verdict = check(key, slip())
        assert verdict.state == "wrong"
        assert message in verdict.message


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        (0.43751, 0.44),
        (0.43751, 0.43),
        (0.43751, 0.4),
        (-0.43751, -0.44),
        (-0.43751, -0.43),
        (243.0, 240),
        (1.732, 1.7),
    ],
)
def test_the_right_number_with_too_few_digits_is_told_so(target, answer):
    verdict = Number(answer=lambda: target, hint="Think.", reason="So it is.").judge(answer)
    assert verdict.state == "wrong"
    assert "digits" in verdict.message


@pytest.mark.parametrize("answer", [0.45, 0.4421, 0.5, 0.0, 1.0, 4.375, -0.44, 0.4394, 0.429])
def test_another_number_near_it_gets_the_hint(answer):
    verdict = Number(answer=lambda: 0.43751, hint="Think.", reason="So it is.").judge(answer)
    assert "digits" not in verdict.message
    assert "Think." in verdict.message


def test_a_slip_keeps_its_own_message_where_it_is_also_the_answer_cut_short():
    exercise = Number(answer=lambda: 0.43751, hint="", reason="", mistakes=((lambda: 0.43, "Too low."),))
    assert "Too low." in exercise.judge(0.43).message


@pytest.mark.parametrize("key", [key for key, exercise in ALL.items() if isinstance(exercise, Choice)])
def test_one_option_is_right_and_every_other_says_why_it_is_not(key):
    exercise = ALL[key]
    states = {letter: check(key, f" {letter.upper()} ") for letter in exercise.options}
    assert [letter for letter, verdict in states.items() if verdict.state == "right"] == [exercise.correct]
    for letter, verdict in states.items():
        assert letter == exercise.correct or exercise.options[letter] in verdict.message
        assert letter == exercise.correct or len(exercise.options[letter]) > 20


@pytest.mark.parametrize("key", [key for key, exercise in ALL.items() if isinstance(exercise, Code)])
def test_a_function_that_raises_or_returns_nothing_is_told_so(key):
    def broken(*_args, **_kwargs):
        raise ZeroDivisionError("by zero")

    assert "ZeroDivisionError" in check(key, broken).message
    assert check(key, lambda *args, **kwargs: None).state == "wrong"


def test_a_policy_that_overflows_is_not_accepted():
    def naive(q, rewards, beta):
        weights = np.array(q) * np.exp(np.array(rewards) / beta)
        return weights / weights.sum()

    with np.errstate(all="ignore"):
        verdict = check("kl-6", naive)
    assert verdict.state == "wrong"
    assert "1000" in verdict.message


def test_an_unknown_key_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"key must name an exercise.*kl-1.*'kl-99'"):
        check("kl-99", 1.0)


@pytest.mark.parametrize("key", ALL)
def test_every_exercise_has_a_hint_and_a_reason(key):
    assert len(hint(key)) > 20
    assert len(ALL[key].reason) > 20


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_chapter_asks_each_of_its_exercises_and_solves_it(path):
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    asked, solved = [], []
    for cell in cells:
        for key in re.findall(r'exercises\.check\(\s*"([^"]+)"', "".join(cell["source"])):
            shown = "".join(text for output in cell["outputs"] for text in output.get("data", {}).get("text/plain", []))
            hidden = "hide-cell" in cell["metadata"].get("tags", [])
            (solved if hidden else asked).append(key)
            assert shown.startswith("✓" if hidden else "…"), f"{key}: {shown}"
    assert asked == solved
    assert len(asked) >= 4
    assert set(asked) == {key for key in ALL if key.split("-")[0] in {a.split("-")[0] for a in asked}}
