"""The reader of YAML: scalars of YAML 1.2, and mistakes with places."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from claw_compile.parsing.node import Source
from claw_compile.parsing.yaml_reader import read_yaml
from claw_contract.yaml_nodes import scalar_value


@pytest.mark.requirement("compile:yaml-1-2")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("4000:22", "4000:22"),
        ("0123", 123),
        ("0o17", 15),
        ("0x1F", 31),
        ("1e3", 1000.0),
        ("1_000", "1_000"),
        ("true", True),
        ("TRUE", True),
        ("tRue", "tRue"),
        ("~", None),
        ("", None),
        ("2026-01-01", "2026-01-01"),
        ("-.inf", float("-inf")),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_a_plain_scalar_means_what_yaml_1_2_says(text: str, value: object) -> None:
    assert scalar_value(text) == value
    assert type(scalar_value(text)) is type(value)


def test_a_scalar_keeps_its_spelling() -> None:
    root = read_yaml(Source("pod", "id: 0123\nport: 4000:22\n")).value
    assert root is not None
    assert [entry.value.text for entry in root.entries] == ["0123", "4000:22"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    ["[" * 5000, 'a: "\\UFFFFFFFF"', 'a: "\\ud800"', "a: \x07", "\ta: b", "%YAML 3\n---\na", "*x"],
)
def test_what_is_not_yaml_is_a_diagnostic_with_a_place(text: str) -> None:
    result = read_yaml(Source("pod", text))
    assert [diagnostic.code.name for diagnostic in result.diagnostics] == ["yaml-syntax"]
    assert result.diagnostics[0].span.line >= 1


def test_a_byte_order_mark_shifts_no_column(tmp_path: Path) -> None:
    (tmp_path / "claw-pod.yml").write_bytes(
        "\ufeffx-claw: {pod: Desk}\r\nservices: {}\r\n".encode()
    )
    diagnostic = check_pod(tmp_path / "claw-pod.yml", {}).diagnostics[0]
    assert (
        diagnostic.code.name,
        diagnostic.span.line,
        diagnostic.span.column,
        diagnostic.span.end_column,
    ) == (
        "bad-name",
        1,
        15,
        19,
    )
