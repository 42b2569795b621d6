"""The settings as mitmproxy's options, which everybody who may ask for options sees."""

from __future__ import annotations

import pytest
from mitmproxy import optmanager

from claw_mediate.mitm import options
from tests.proxy.looking import taddons

PLACE = "redis://:state-password-planted@127.0.0.1:6379/0"


class Ours:
    def load(self, loader: object) -> None:
        options.add(loader)


@pytest.mark.requirement("settings:shown")
def test_a_password_of_the_environment_is_no_default_and_counts_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLAW_STATE", PLACE)
    monkeypatch.setenv("CLAW_POD", "fleet")
    with taddons.context(Ours()) as mitmproxy:
        shown = optmanager.dump_dicts(mitmproxy.options)
        assert "planted" not in repr(shown)
        assert shown["cllama_pod"]["value"] == "fleet"
        assert (options.values()["state"], options.values()["pod"]) == (PLACE, "fleet")
        mitmproxy.options.set("cllama_state=state.db")
        assert options.values()["state"] == "state.db"
        mitmproxy.options.set("cllama_state=")
        assert options.values()["state"] == ""
