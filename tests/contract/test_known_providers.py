"""The variables and the text by which a provider's key is recognized."""

from __future__ import annotations

import pytest

from claw_contract.known_providers import KEY_SHAPE, is_key_variable, provider_of


@pytest.mark.requirement("compile:starvation")
@pytest.mark.parametrize(
    ("variable", "provider"),
    [
        ("OPENAI_API_KEY", "openai"),
        ("OPENAI_API_KEY_12", "openai"),
        ("GEMINI_API_KEY", "google"),
        ("OPENAI_API_KEYS", None),
        ("OPENAI_API_KEY_", None),
        ("OPENAI_API_KEY_x", None),
        ("OPENAI_API_KEY_²", None),
        ("MY_OPENAI_API_KEY", None),
        ("GROQ_API_KEY", None),
    ],
)
def test_a_variable_belongs_to_a_provider_by_its_name_and_number(
    variable: str, provider: str | None
) -> None:
    assert provider_of(variable) == provider


@pytest.mark.requirement("compile:starvation")
def test_variables_of_other_model_providers_hold_keys_too() -> None:
    variables = ["GROQ_API_KEY", "GROQ_API_KEY_2", "AWS_SESSION_TOKEN", "XAI_API_KEY_1", "TZ"]
    assert [is_key_variable(name) for name in variables] == [True, True, True, True, False]


@pytest.mark.requirement("compile:starvation")
def test_a_key_is_found_by_its_form_and_not_within_a_word() -> None:
    assert KEY_SHAPE.search("key=sk-ant-0123456789")
    assert KEY_SHAPE.search("AKIAABCDEFGHIJKL")
    assert not KEY_SHAPE.search("a risk-management1 desk")
