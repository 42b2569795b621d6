"""Redacted messages: each shown part leads back to its own original after any edit.

Edited parts are sent as edited.
"""

from __future__ import annotations

import pytest

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import DOTS
from claw_mediate.mitm import flow_state
from claw_mediate.mitm.addon_state import AddonState
from claw_mediate.mitm.flow_state import state_of
from claw_mediate.mitm.view.hidden_flows import MAX_SHOWN
from claw_mediate.mitm.view.redacted_message import redact_body, redact_head, restore
from claw_mediate.mitm.view.redaction import RedactionAddon, original_request
from claw_mediate.telemetry.event_log import EventLog
from tests.proxy.looking import dumper, http, save, savehar, taddons, tflow

KEY = "sk-provider-key-planted-0001"
KNOWN = Redactor([KEY])
COOKIES = ("a=1", "b=2", "c=3")


class KeyIsKnown(AddonState):
    def redactor(self) -> Redactor:
        return KNOWN


def addon() -> RedactionAddon:
    """Return the addon of a pod whose secret is ``KEY``."""
    return RedactionAddon(KeyIsKnown(EventLog([].append)))


def request(*fields: tuple[str, str], content: bytes = b"", path: str = "/") -> http.Request:
    made = http.Request.make("POST", "http://localhost/", content)
    made.path = path
    made.headers.fields += tuple((name.encode(), value.encode()) for name, value in fields)
    return made


def response(*cookies: str) -> http.Response:
    made = http.Response.make(200)
    made.headers.set_all("set-cookie", cookies)
    return made


@pytest.mark.requirement("redaction:edits")
@pytest.mark.parametrize("kept", [(0, 1, 2), (1, 2), (2, 0), (1,), (0, 1, 1)])
@pytest.mark.parametrize("anew", [False, True])
def test_headers_that_would_be_shown_alike_go_back_to_their_own_wherever_they_stand(
    kept: tuple[int, ...], anew: bool
) -> None:
    message = response(*COOKIES)
    originals = redact_head(message, None)
    shown = message.headers.get_all("set-cookie")
    assert len(set(shown)) == 3
    assert all(DOTS in each for each in shown)
    if anew:
        message.headers.set_all("set-cookie", [shown[each] for each in kept])
    else:
        message.headers.fields = tuple(message.headers.fields[-3:][each] for each in kept)
    assert restore(message, originals).headers.get_all("set-cookie") == [
        COOKIES[each] for each in kept
    ]


@pytest.mark.requirement("redaction:edits")
def test_a_header_made_of_dots_is_left_out_unless_it_came_with_them() -> None:
    message = request(
        ("cookie", "a=1"),
        ("x-own", DOTS),
        ("x-own", f"{DOTS} of a runner"),
        ("authorization", "Bearer a"),
    )
    came = message.headers.fields
    originals = redact_head(message, KNOWN)
    assert restore(message, originals).headers.fields == came
    message.headers["x-copy"] = message.headers["authorization"]
    message.cookies["b"] = "2"
    assert restore(message, originals).headers.fields == tuple(
        each for each in came if each[0] != b"cookie"
    )


@pytest.mark.requirement("redaction:edits")
@pytest.mark.parametrize("content", [f"key={KEY}".encode(), b"x" * (MAX_SHOWN + 1)])
def test_an_unedited_body_is_restored_and_the_length_is_that_of_what_is_sent(
    content: bytes,
) -> None:
    message = request(("content-length", str(len(content))), content=content)
    originals = redact_head(message, KNOWN)
    redact_body(message, originals, KNOWN)
    assert message.raw_content != content
    assert originals.own_body(message) == content
    message.content = (
        message.content
    )  # an edit that changes nothing sets content-length to that of the shown body
    whole = restore(message, originals)
    assert (whole.raw_content, whole.headers["content-length"]) == (content, str(len(content)))
    message.data.content = b"edited"  # without setting content-length
    whole = restore(message, originals)
    assert (whole.raw_content, whole.headers["content-length"]) == (b"edited", "6")
    assert originals.own_body(message) == b"edited"


@pytest.mark.requirement("redaction:forwarded")
def test_a_reason_phrase_that_holds_a_secret_is_shown_as_the_standard_one() -> None:
    message = http.Response.make(400)
    message.reason = f"bad key {KEY}"
    originals = redact_head(message, KNOWN)
    assert message.reason == "Bad Request"
    assert restore(message, originals).reason == f"bad key {KEY}"


@pytest.mark.requirement("redaction:edits")
def test_what_is_sent_again_has_no_dots_in_the_place_of_what_is_gone() -> None:
    with taddons.context(dumper.Dumper(), save.Save(), savehar.SaveHar(), part := addon()):
        flow = tflow.tflow(
            req=request(("cookie", DOTS), ("x-odd", f"it is {DOTS}"), ("x-good", "1"))
        )
        flow.is_replay = "request"
        part.requestheaders(flow)
        assert [
            name for name, _ in original_request(flow).headers.items() if name != "content-length"
        ] == ["x-good"]
        assert flow.response is None
        flow = tflow.tflow(req=request(path=f"/?key={DOTS}"))
        flow.is_replay = "request"
        part.requestheaders(flow)
        assert flow.response is not None
        assert flow.response.status_code == 403


@pytest.mark.requirement("redaction:over")
async def test_nothing_is_kept_of_a_request_whose_runner_has_left() -> None:
    with taddons.context(dumper.Dumper(), save.Save(), savehar.SaveHar(), part := addon()):
        flow = tflow.tflow(req=request(("cookie", "a=1")), err=True)
        part.requestheaders(flow)
        assert state_of(flow).redaction is not None
        state_of(flow).runner_left = True
        await part.error(flow)
        assert state_of(flow).redaction is None


@pytest.mark.requirement("redaction:beyond")
@pytest.mark.parametrize("where", ["scheme", "sni", "alpn"])
def test_a_secret_in_the_name_of_a_connection_reaches_nobody_and_is_not_shown(
    where: str,
) -> None:
    with taddons.context(
        dumper.Dumper(), save.Save(), savehar.SaveHar(), part := addon()
    ) as context:
        context.options.flow_detail = 1
        flow = tflow.tflow(req=request())
        match where:
            case "scheme":
                flow.request.data.scheme = KEY.encode()
            case "sni":
                flow.client_conn.sni = KEY
            case "alpn":
                flow.client_conn.alpn_offers = [b"http/1.1", KEY.encode()]
        part.requestheaders(flow)
        assert flow.response is not None
        assert flow.response.status_code == 400
        assert KEY not in repr(flow.get_state())


@pytest.mark.requirement("redaction:over")
def test_a_flow_of_a_file_is_shown_without_secrets_and_no_original_is_kept() -> None:
    with taddons.context(
        dumper.Dumper(), save.Save(), savehar.SaveHar(), part := addon()
    ) as context:
        context.options.flow_detail = 1
        flow = tflow.tflow(
            req=request(("cookie", "a=1"), content=KEY.encode()), resp=response(f"b={KEY}")
        )
        flow.live = False
        flow_state.begin(flow)
        for told in (part.requestheaders, part.request, part.responseheaders, part.response):
            told(flow)
        assert KEY not in repr(flow.get_state())
        assert state_of(flow).redaction is None
