"""YAML as plain data: what a value means."""

from __future__ import annotations

import pytest

from claw_compile.parsing.node import Source, plain_data
from claw_compile.parsing.yaml_reader import read_yaml
from claw_tools.document import read_document


@pytest.mark.requirement("host:config-yaml-1-2")
@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("on", "on"),
        ("0123", 123),
        ("1_000", "1_000"),
        ("22:22", "22:22"),
        ("2001-01-01", "2001-01-01"),
        ("true", True),
        ("!!str 0123", "0123"),
        ("'5'", "5"),
        ("", None),
        ("{<<: {a: 1, b: 2}, b: 3}", {"a": 1, "b": 3}),
        ("{<<: [{a: 1}, {a: 2, c: 4}]}", {"a": 1, "c": 4}),
    ],
)
def test_a_value_means_what_it_means_in_a_pod_file(word: str, value: object) -> None:
    document = read_document(f"x: {word}\n".encode())
    assert (document.problems, document.data) == ([], {"x": value})
    pod = read_yaml(Source("pod.yml", f"x: {word}\n")).value
    assert pod is not None
    assert plain_data(pod) == document.data
