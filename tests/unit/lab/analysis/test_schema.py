"""The schema that results keep to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.run_folders import experiment, make_run

from mltcp_tools.lab.analysis.result import Result, plain
from mltcp_tools.lab.analysis.schema import result_schema
from mltcp_tools.lab.analysis.summary import summarise
from mltcp_tools.lab.runs.run import load_run

KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}


def lapses(value: Any, wanted: dict[str, Any], top: dict[str, Any], at: str = "") -> list[str]:
    """Return where a value doesn't keep to a schema, in the part of JSON Schema that ours uses."""
    if "$ref" in wanted:
        wanted = top["$defs"][wanted["$ref"].rpartition("/")[2]]
    if "anyOf" in wanted:
        tried = [lapses(value, each, top, at) for each in wanted["anyOf"]]
        return min(tried, key=len)
    if "enum" in wanted:
        return [] if value in wanted["enum"] else [f"{at}: {value!r}"]
    if "type" in wanted:
        named = wanted["type"] if isinstance(wanted["type"], list) else [wanted["type"]]
        kinds = tuple(kind for name in named for kind in KINDS[name])
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            return [f"{at}: {value!r} is no {' or '.join(named)}"]
    found: list[str] = []
    if isinstance(value, dict):
        known, others = wanted.get("properties", {}), wanted.get("additionalProperties", {})
        found += [
            f"{at}.{key} is missing" for key in wanted.get("required", ()) if key not in value
        ]
        for key, each in value.items():
            if key not in known and others is False:
                found.append(f"{at}.{key} is unknown")
            else:
                found += lapses(each, known.get(key, others), top, f"{at}.{key}")
    if isinstance(value, list):
        for each in value:
            found += lapses(each, wanted.get("items", {}), top, f"{at}[]")
    return found


@pytest.mark.parametrize("damaged", [False, True])
def test_results_keep_to_the_schema(damaged: bool, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", experiment(jobs=2))
    if damaged:
        (folder / "experiment.yaml").unlink()
    document = summarise(load_run(folder)).document()
    assert lapses(document, result_schema(), result_schema()) == []


def test_a_result_that_does_not_keep_to_it_is_told() -> None:
    empty: dict[str, Any] = {}
    result = Result(
        run="r",
        experiment=empty,
        environment=empty,
        baseline=None,
        settled_from=10,
        isolated_comm_s={},
        lone={},
        alone=None,
        variants={},
        schedules={},
        speedup={},
    )
    document = result.document()
    assert lapses(document, result_schema(), result_schema()) == []
    wrong = document | {"baseline": 3, "more": 1, "variants": {"a": {}}}
    del wrong["run"]
    found = " ".join(lapses(wrong, result_schema(), result_schema()))
    for part in ("baseline: 3", ".more is unknown", ".run is missing", ".variants.a.cc is missing"):
        assert part in found


def test_what_is_no_number_becomes_null() -> None:
    assert plain({"a": float("nan"), "b": [float("inf"), 1.5]}) == {"a": None, "b": [None, 1.5]}
