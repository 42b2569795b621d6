"""The base of the models: the one line that says what is wrong with a document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from claw_contract.base import error_line
from claw_contract.metadata import Metadata
from tests.contract.test_secret import VALUE


@pytest.mark.requirement("contract:secret-dots")
@pytest.mark.parametrize(
    "document",
    [
        {"service": "a", "pod": "p", "token": VALUE, "token_sha256": "0" * 64},
        {"service": "a", "pod": 5, "token": VALUE},
        {"service": "a", "pod": "p", "token": [VALUE]},
        {"service": "a", "pod": "p", "token_sha256": VALUE},
    ],
)
def test_an_error_line_about_a_document_never_shows_its_values(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        Metadata.model_validate_json(json.dumps(document))
    assert VALUE not in error_line(caught.value)
