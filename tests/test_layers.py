"""labsrc's layers as a table: a module may import what stands below it, and nothing beside or above it."""

import ast
import graphlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

LABSRC = Path(__file__).resolve().parent.parent / "labsrc"

# From the bottom up. Units on one line do not know each other. A name may be a module or a package;
# inside a package, imports are free as long as they make no circle.
LAYERS = (
    ("checks",),
    ("masking",),
    ("advantages", "policy_gradient", "kl", "preference"),
    ("aggregation", "closed_form", "clipped_ascent", "engine_mismatch", "preference_pairs", "preference_family"),
    ("exact", "binary_groups", "length_bias", "length_penalty", "preference_descent"),
    ("grpo", "kl_estimators", "sequence_penalties", "baselines", "engine_bias"),
    ("bandit", "ledger"),
    ("toylm",),
    ("pitfalls", "trl_bridge"),
    ("plots", "tables"),
    ("labs",),
    ("__main__",),
)
LEVEL = {unit: level for level, units in enumerate(LAYERS) for unit in units}

# What may be imported from outside, and by whom; None: by every unit.
THIRD_PARTY = {
    "torch": None,
    "numpy": None,
    "matplotlib": {"plots", "labs"},
    "ipywidgets": {"labs"},
    "IPython": {"labs"},
    "traitlets": {"labs"},
    "jsonschema": {"toylm"},
    "joblib": {"toylm"},
    "dask": {"toylm"},
    "trl": {"trl_bridge"},
    "transformers": {"trl_bridge"},
    "tokenizers": {"trl_bridge"},
    "datasets": {"trl_bridge"},
    "accelerate": {"trl_bridge"},
}


def module_name(path: Path) -> str:
    """labsrc/toylm/model.py is toylm.model; a package's __init__.py is the package."""
    parts = path.relative_to(LABSRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(source: str, module: str, *, is_package: bool) -> set[str]:
    """Every dotted name that `source` imports, wherever the import stands, relative ones made absolute.

    `from a import b` counts as a.b, since b may be a module; whoever looks names up takes the longest known.
    """
    home = ["labsrc", *module.split(".")] if module else ["labsrc"]
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = home[: len(home) - node.level + is_package] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            names.update(f"{prefix}.{alias.name}" for alias in node.names)
    return names


def known_module(name: str, modules: Iterable[str]) -> str | None:
    """The module of labsrc that the dotted name reaches: the longest one that is a prefix of it."""
    inner = name.removeprefix("labsrc").removeprefix(".")
    prefixes = [".".join(inner.split(".")[:n]) for n in range(inner.count(".") + 1, 0, -1)]
    return next((prefix for prefix in prefixes if prefix in modules), None)


def violations(imports: Mapping[str, set[str]]) -> list[str]:
    """What in `imports` (module of labsrc: the dotted names it imports) breaks the table."""
    found, graph = [], {}
    for module, names in imports.items():
        unit = module.split(".")[0]
        if module and unit not in LEVEL:
            found.append(f"{module}: not in the table of layers")
            continue
        graph[module] = set()
        for name in names:
            top = name.split(".")[0]
            if top == "labsrc":
                target = known_module(name, imports)
                if target is None or target == module:
                    continue
                graph[module].add(target)
                other = target.split(".")[0]
                if other != unit and (not module or LEVEL.get(other, len(LAYERS)) >= LEVEL[unit]):
                    found.append(f"{module or 'labsrc'}: imports {target}, which is not below it")
            elif top in THIRD_PARTY:
                if THIRD_PARTY[top] is not None and unit not in THIRD_PARTY[top]:
                    found.append(f"{module}: may not import {top}")
            elif top not in sys.stdlib_module_names:
                found.append(f"{module}: {top} is not a dependency of labsrc")
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        found.append(f"a circle of imports: {' -> '.join(error.args[1])}")
    return found


def imports_of_labsrc() -> dict[str, set[str]]:
    return {
        module_name(path): imported_names(
            path.read_text(encoding="utf-8"), module_name(path), is_package=path.name == "__init__.py"
        )
        for path in sorted(LABSRC.rglob("*.py"))
    }


def test_every_import_of_labsrc_points_down_the_table():
    imports = imports_of_labsrc()
    assert {"checks", "kl", "grpo"} <= imports.keys(), "the modules were not found, so nothing was checked"
    assert violations(imports) == []


@pytest.mark.parametrize(
    ("imports", "complaint"),
    [
        ({"kl": {"labsrc.grpo"}, "grpo": set()}, "kl: imports grpo, which is not below it"),
        ({"kl": {"labsrc.preference.dpo_loss"}, "preference": set()}, "kl: imports preference, which"),
        ({"utils": set()}, "utils: not in the table"),
        ({"": {"labsrc.kl"}, "kl": set()}, "labsrc: imports kl, which is not below it"),
        ({"kl": {"ipywidgets"}}, "kl: may not import ipywidgets"),
        ({"toylm.model": {"matplotlib.pyplot"}}, "toylm.model: may not import matplotlib"),
        ({"kl": {"scipy.special"}}, "kl: scipy is not a dependency"),
        ({"toylm.a": {"labsrc.toylm.b"}, "toylm.b": {"labsrc.toylm.a"}}, "a circle of imports"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_table_refuses(imports, complaint):
    assert any(found.startswith(complaint) for found in violations(imports)), violations(imports)


@pytest.mark.parametrize(
    "imports",
    [
        {"grpo": {"labsrc.kl.kl_k3", "torch", "math"}, "kl": {"labsrc.checks"}, "checks": set()},
        {"toylm.train": {"labsrc.toylm.model"}, "toylm.model": {"labsrc.kl"}, "kl": set(), "toylm": set()},
        {"labs.tilt": {"ipywidgets", "matplotlib", "labsrc.closed_form.objective"}, "closed_form": set()},
    ],
    ids=["down", "inside a package", "a lab"],
)
def test_the_table_allows(imports):
    assert violations(imports) == []


def test_imports_are_seen_in_every_form():
    source = "import a.b\ndef f():\n    from labsrc import kl as k\n    from . import model\n    from ..grpo import x\n"
    names = imported_names(source, "toylm.train", is_package=False)
    assert names == {"a.b", "labsrc.kl", "labsrc.toylm.model", "labsrc.grpo.x"}
    assert imported_names("from . import model", "toylm", is_package=True) == {"labsrc.toylm.model"}
