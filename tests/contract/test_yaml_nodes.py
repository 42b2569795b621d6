"""YAML nodes with the meaning of YAML 1.2, by libyaml and by PyYAML's own parser alike."""

from __future__ import annotations

import pytest
import yaml

from claw_contract.yaml_nodes import YamlDocument, compose_yaml, scalar_value


def values(document: YamlDocument) -> list[object]:
    assert isinstance(document.root, yaml.SequenceNode)
    return [
        scalar_value(node.value) if document.is_plain(node) else node.value
        for node in document.root.value
    ]


@pytest.mark.requirement("compile:yaml-1-2", "host:config-yaml-1-2")
@pytest.mark.parametrize("with_libyaml", [True, False])
def test_only_a_plain_scalar_without_a_string_tag_is_more_than_text(
    with_libyaml: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", with_libyaml and yaml.__with_libyaml__)
    document = compose_yaml("[0123, '0123', !!str 0123, ! 0123, on, true, 1_000, ~, 0x10]")
    assert values(document) == [123, "0123", "0123", "0123", "on", True, "1_000", None, 16]


@pytest.mark.requirement("compile:yaml-1-2")
def test_a_number_of_very_many_digits_stays_a_text() -> None:
    assert scalar_value("9" * 400) == 10**400 - 1
    assert scalar_value("9" * 401) == "9" * 401


@pytest.mark.requirement("compile:yaml-1-2")
def test_an_empty_text_has_no_node() -> None:
    assert compose_yaml("# nothing\n").root is None


@pytest.mark.requirement("host:config-yaml")
@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\ta: 1", "%YAML 1\n", "- &a\n- *b"])
def test_broken_yaml_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as caught:
        compose_yaml(text)
    assert caught.value.problem_mark is not None
