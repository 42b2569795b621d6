"""The build context of a service: a Dockerfile's labels as Docker reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_compile.compiler import check_pod
from claw_compile.loading.build_context import labels
from claw_compile.parsing.node import Source


@pytest.mark.requirement("compile:dockerfile-labels")
@pytest.mark.parametrize(
    ("dockerfile", "target", "expected"),
    [
        ("FROM a\nLABEL k=v", None, {"k": "v"}),
        ("from a\n  label k=v j=w", None, {"k": "v", "j": "w"}),
        ("FROM a\nLABEL k v and more ", None, {"k": "v and more"}),
        ("FROM a\nLABEL k 'v and more'", None, {"k": "v and more"}),
        ('FROM a\nLABEL "k"="a b" j=\'c d\'', None, {"k": "a b", "j": "c d"}),
        ("FROM a\nLABEL k=a\\ b", None, {"k": "a b"}),
        ("FROM a\nLABEL k=v \\\n# a comment\n\n  j=w", None, {"k": "v", "j": "w"}),
        ("FROM a\nLABEL k=v \\  \n  j=w\nLABEL j=x", None, {"k": "v", "j": "x"}),
        ("# escape=`\nFROM a\nLABEL k=C:\\dir `\n  j=w", None, {"k": "C:\\dir", "j": "w"}),
        (
            "# syntax=docker/dockerfile:1\n# escape=`\nFROM a\nLABEL k=v `\n j=w",
            None,
            {"k": "v", "j": "w"},
        ),
        ("FROM a\nLABEL k=v\nFROM b", None, {}),
        ("FROM a AS one\nLABEL k=v\nFROM one\nLABEL j=w", None, {"k": "v", "j": "w"}),
        ("FROM --platform=$P a AS One\nLABEL k=v\nFROM b", "one", {"k": "v"}),
        ("FROM a\nLABEL k=v\nFROM b", "0", {"k": "v"}),
        ("FROM a\nLABEL k=v", "nobody", {}),
        (
            "FROM a\nRUN <<EOF cat <<-'END'\nLABEL k=v\nEOF\n\tLABEL j=w\n\tEND\nLABEL l=x",
            None,
            {"l": "x"},
        ),
        ("FROM a\nONBUILD LABEL k=v", None, {}),
        ("FROM a\n# LABEL k=v\nENV A=1\nLABEL", None, {}),
        ("FROM a\nLABEL k=v \\", None, {"k": "v"}),
        ("FROM a\nLABEL k=/a/$B", None, {"k": "/a/$B"}),
    ],
)
def test_labels_are_read_as_docker_reads_them(
    dockerfile: str, target: str | None, expected: dict[str, str]
) -> None:
    assert {
        name: value.text for name, value in labels(Source("Dockerfile", dockerfile), target).items()
    } == expected


def test_a_label_of_a_line_that_goes_on_has_the_place_of_its_own_line() -> None:
    text = "FROM a\nLABEL k=v \\\n      claw.describe=/a.json"
    at = labels(Source("Dockerfile", text))["claw.describe"].span
    assert (at.line, at.column, at.end_column) == (3, 7, 28)


@settings(max_examples=300, deadline=None)
@given(
    st.text(st.sampled_from(list("FROMLABELRUN from as k=v\\\n\t\"'#<-$ EOF`"))),
    st.sampled_from([None, "k", "0"]),
)
def test_any_text_has_labels_with_places_or_none(text: str, target: str | None) -> None:
    source = Source("Dockerfile", text)
    for value in labels(source, target).values():
        assert 1 <= value.span.line <= len(source.lines)


def codes(pod: Path) -> list[str]:
    return [
        diagnostic.code.name
        for diagnostic in check_pod(pod, {}).diagnostics
        if diagnostic.code.name != "no-agents"
    ]


def test_a_build_context_that_leads_out_of_the_pod_is_not_looked_into(tmp_path: Path) -> None:
    pod = tmp_path / "pod"
    pod.mkdir()
    (tmp_path / ".claw-describe.json").write_text("{", encoding="utf-8")
    (pod / "claw-pod.yml").write_text(
        "x-claw: {pod: desk}\nservices: {api: {build: link}}\n", encoding="utf-8"
    )
    (pod / "link").symlink_to(tmp_path)
    assert codes(pod / "claw-pod.yml") == []
