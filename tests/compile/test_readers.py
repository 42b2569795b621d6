"""Scalars, the readers of YAML and JSON, and files that are not a pod."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_compile.compiler import check_pod
from claw_compile.parsing.json_reader import read_json
from claw_compile.parsing.node import Source, plain_data
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


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_json_reads_as_the_standard_library_reads_it(data: object, ascii_only: bool) -> None:
    text = json.dumps(data, ensure_ascii=ascii_only, indent=1)
    root = read_json(Source("x.json", text))
    assert root.diagnostics == ()
    assert root.value is not None
    assert plain_data(root.value) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        '{"a" 1}',
        "{a: 1}",
        '{"a": 1} 2',
        "NaN",
        "01",
        '"\\ud800"',
        '"\t"',
        '"\\x"',
        "1e999",
        "[" * 99,
        "tru",
    ],
)
def test_what_is_not_json_is_one_diagnostic(text: str) -> None:
    result = read_json(Source("x.json", text))
    assert result.value is None
    assert [diagnostic.code.name for diagnostic in result.diagnostics] == ["json-syntax"]


@given(st.text(alphabet='{}[]",:\\u0eE1.-tnl \n', max_size=40))
def test_the_json_reader_accepts_no_more_than_json(text: str) -> None:
    result = read_json(Source("x.json", text))
    if result.value is not None and not result.diagnostics:
        assert plain_data(result.value) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    ["[" * 5000, 'a: "\\UFFFFFFFF"', 'a: "\\ud800"', "a: \x07", "\ta: b", "%YAML 3\n---\na", "*x"],
)
def test_what_is_not_yaml_is_a_diagnostic_with_a_place(text: str) -> None:
    result = read_yaml(Source("pod", text))
    assert [diagnostic.code.name for diagnostic in result.diagnostics] == ["yaml-syntax"]
    assert result.diagnostics[0].span.line >= 1


def only_code(pod_file: Path) -> str:
    result = check_pod(pod_file, {})
    assert result.value is None
    (diagnostic,) = result.diagnostics
    assert (diagnostic.span.file, diagnostic.span.line) == (str(pod_file), 1)
    return diagnostic.code.name


@pytest.mark.requirement("compile:no-traceback")
def test_a_pod_file_that_is_missing_a_directory_or_a_pipe_is_one_diagnostic(tmp_path: Path) -> None:
    assert only_code(tmp_path / "nothing.yml") == "unreadable-file"
    assert only_code(tmp_path) == "unreadable-file"
    os.mkfifo(tmp_path / "pipe")
    assert only_code(tmp_path / "pipe") == "unreadable-file"
    (tmp_path / "latin1.yml").write_bytes(b"x-claw: caf\xe9\n")
    assert only_code(tmp_path / "latin1.yml") == "not-utf8"
    (tmp_path / "empty.yml").write_bytes(b"# nothing\n")
    assert only_code(tmp_path / "empty.yml") == "not-a-mapping"


@pytest.mark.requirement("compile:paths-stay-inside")
def test_a_symlink_out_of_the_pod_is_refused_and_one_inside_is_not(tmp_path: Path) -> None:
    pod = tmp_path / "pod"
    pod.mkdir()
    (tmp_path / "secret").write_text("outside", encoding="utf-8")
    (pod / "AGENTS.md").write_text("inside", encoding="utf-8")
    (pod / "out").symlink_to(tmp_path / "secret")
    (pod / "in").symlink_to("AGENTS.md")
    for name, codes in (("out", ["path-escapes-pod"]), ("in", [])):
        (pod / "claw-pod.yml").write_text(
            f"x-claw: {{pod: desk}}\nservices: {{one: {{x-claw: {{agent: {name}}}}}}}\n",
            encoding="utf-8",
        )
        assert [
            diagnostic.code.name for diagnostic in check_pod(pod / "claw-pod.yml", {}).diagnostics
        ] == codes


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
