"""Secrets print as dots, and are found in everything that leaves the process."""

from __future__ import annotations

import json
import pickle

import pytest
from pydantic import ValidationError

from claw_contract.manifest import BearerAuth
from claw_contract.secret import DOTS, REVEAL, Secret, SecretRef

VALUE = "s3cr3t-value"


@pytest.mark.requirement("contract:secret-dots")
def test_a_secret_shows_dots_everywhere_except_where_it_is_revealed() -> None:
    secret = Secret(VALUE)
    auth = BearerAuth(type="bearer", token=secret)
    shown = [
        str(secret),
        repr(secret),
        f"{secret:>30}",
        f"{[secret]}",
        f"{secret!r}",
        "%s" % secret,  # noqa: UP031
    ]
    shown += [repr(auth), str(auth), auth.model_dump_json(), repr(auth.model_dump())]
    assert [text for text in shown if VALUE in text] == []
    assert all(DOTS in text for text in shown)
    assert secret.reveal() == VALUE
    assert json.loads(auth.model_dump_json(context=REVEAL))["token"] == VALUE


def test_secrets_are_equal_by_value_and_never_equal_to_text() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Secret("")


def test_a_secret_has_no_dictionary_to_look_into() -> None:
    assert not hasattr(Secret(VALUE), "__dict__")
    assert pickle.loads(pickle.dumps(Secret(VALUE))) == Secret(VALUE)


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "..", "../x", ".hidden", "a/b", "a\n", "a" * 129]
)
def test_a_reference_names_one_file_of_the_secrets_directory(name: str) -> None:
    with pytest.raises(ValidationError):
        SecretRef(secret=name)
