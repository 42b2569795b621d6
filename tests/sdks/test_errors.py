"""Errors: before the headers they keep their status, afterwards they are an event.

No SDK waits, or takes one for an end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sdks.conftest import Speakers, speakers
from tests.sdks.hearing import ANTHROPIC, OPENAI, Heard, hear

SDKS = (*OPENAI, *ANTHROPIC)
BEFORE = {
    "openai-py create": "BadRequestError",
    "openai-py stream": "BadRequestError",
    "openai-js create": "BadRequestError",
    "openai-js stream": "BadRequestError",
    "ai openai": "APICallError",
    "anthropic-py create": "BadRequestError",
    "anthropic-py stream": "BadRequestError",
    "anthropic-py async stream": "BadRequestError",
    "anthropic-js create": "BadRequestError",
    "anthropic-js stream": "BadRequestError",
    "ai anthropic": "APICallError",
}


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speakers]:
    """Yield a pod whose streams begin with the first answer, even if a busy machine delays that
    beyond the usual first keepalive.
    """
    yield from speakers(tmp_path_factory.mktemp("patient"), CLLAMA_KEEPALIVE_FIRST_MS="60000")


def heard_of(spoken: Speakers, case: str) -> dict[str, Heard]:
    return dict(zip(SDKS, hear([spoken.job(case, sdk) for sdk in SDKS]), strict=True))


@pytest.mark.requirement("stream:errors-in-sdks", "stream:status-until-it-goes-on")
def test_an_error_before_the_headers_is_the_sdks_own_with_its_status(patient: Speakers) -> None:
    heard = heard_of(patient, "fails at once")
    assert {sdk: said["error"]["kind"] for sdk, said in heard.items()} == BEFORE
    assert {said["error"]["status"] for said in heard.values()} == {400}
    assert [
        sdk for sdk, said in heard.items() if "that is too long" not in said["error"]["message"]
    ] == []


@pytest.mark.requirement("stream:errors-in-sdks")
def test_a_page_instead_of_an_error_keeps_its_status(patient: Speakers) -> None:
    heard = heard_of(patient, "fails as a page")
    assert {said["error"]["status"] for said in heard.values()} == {400}


@pytest.mark.requirement("stream:errors-in-sdks", "stream:error-event")
@pytest.mark.parametrize(
    ("case", "words"), [("fails later", "that is too long"), ("fails later as a page", "400")]
)
def test_an_error_behind_the_headers_is_raised_by_every_sdk(
    spoken: Speakers, case: str, words: str
) -> None:
    heard = heard_of(spoken, case)
    assert [sdk for sdk, said in heard.items() if words not in said["error"]["message"]] == []


@pytest.mark.requirement("stream:errors-in-sdks")
def test_who_is_not_admitted_hears_it_as_such(spoken: Speakers) -> None:
    jobs = [spoken.job("words", sdk) for sdk in SDKS]
    heard = hear([type(job)(job.sdk, job.base, "analyst:wrong", job.body) for job in jobs])
    assert {said["error"]["status"] for said in heard} == {403}
