"""The ids that OpenClaw gives to calls over Responses, as it was seen to give them."""

from __future__ import annotations

import pytest

from claw_mediate.dialects.responses.openclaw_ids import openclaw_call_id


@pytest.mark.requirement("responses:openclaw-ids")
@pytest.mark.parametrize(
    ("call_id", "item_id", "sent"),
    [
        ("call_2", "fc_2", "call_2"),
        ("call_2", "", "call_2"),
        ("call2", f"fc_{2:048x}", f"call_call2_fc_{0:039x}_11545078d8"),
        ("toolu_2", "", "call_toolu_2_f1a6b17c1e"),
        ("call_2", "rs+/==", "call_2_rs_12b4d8c064"),
        ("call_", "", "call_id_d31d6bc11b"),
        ("a\ud800", "", "call_a_5289f1df3e"),
    ],
)
def test_an_id_is_rewritten_as_openclaw_does(call_id: str, item_id: str, sent: str) -> None:
    assert openclaw_call_id(call_id, item_id) == sent
    assert len(sent) <= 64
