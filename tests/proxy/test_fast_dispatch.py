"""The fast dispatch in the real mitmdump.

It is on by default, off by one setting, and without any other effect.
"""

from __future__ import annotations

import os
from pathlib import Path

import httpx2
import pytest

from tests.peers import text
from tests.proxy.pod import Pod
from tests.waiting import eventually

HEARD = "def response(flow):\n    flow.response.headers['x-heard'] = {word!r}\n"
"""The script of another addon."""
TELLS = (
    "from mitmproxy import ctx as _ctx\n"
    "class _Tells:\n"
    "    def response(self, flow):\n"
    "        flow.response.headers['x-manager'] = type(_ctx.master.addons).__name__\n"
    "        layer = _ctx.master.addons.get('proxyserver').connections[flow.client_conn.id].layer\n"
    "        flow.response.headers['x-writes'] = type(layer.handle_event).__name__\n"
    "addons.append(_Tells())\n"
)
DIFFERENT = (
    "from mitmproxy.addonmanager import AddonManager as _Manager\n"
    "_trigger_event = _Manager.trigger_event\n"
    "async def _different(self, event): await _trigger_event(self, event)\n"
    "_Manager.trigger_event = _different\n"
)


def pod_that_tells(pod: Pod, source: str = "") -> None:
    script = pod.own_script()
    script.write_text(script.read_text(encoding="utf-8") + TELLS + source, encoding="utf-8")
    pod.agent("analyst")


def header(pod: Pod, name: str) -> str | None:
    return httpx2.get(f"{pod.url}/health").headers.get(name)


@pytest.mark.requirement("dispatch:choice", "dispatch:writes")
@pytest.mark.parametrize(
    ("environment", "manager", "writes"),
    [({}, "FastManager", "partial"), ({"CLLAMA_DISPATCH": "plain"}, "AddonManager", "method")],
)
def test_dispatch_is_fast_unless_it_is_set_plain(
    pod: Pod, environment: dict[str, str], manager: str, writes: str
) -> None:
    pod_that_tells(pod)
    pod.environment |= environment
    pod.start()
    assert header(pod, "x-manager") == manager
    assert header(pod, "x-writes") == writes


@pytest.mark.requirement("dispatch:asserted")
def test_a_mitmproxy_that_is_built_differently_is_reported_once_and_left_alone(
    pod: Pod,
) -> None:
    pod_that_tells(pod, DIFFERENT)
    pod.start()
    assert header(pod, "x-manager") == "AddonManager"
    (event,) = (line for line in pod.log() if line["type"] == "error")
    assert event["error"] == "dispatch_not_fast"
    assert "AddonManager.trigger_event" in event["reason"]
    pod.provider.says(text("Hello."))
    asked = {"model": "gpt-test", "messages": [{"role": "user", "content": "Go"}]}
    assert pod.client().chat.completions.create(**asked).choices[0].message.content == "Hello."


@pytest.mark.requirement("dispatch:same")
def test_scripts_that_come_change_and_go_are_heard_as_they_are_now(pod: Pod) -> None:
    other = pod.home / "other.py"
    write(other, "one", 0)
    pod_that_tells(pod)
    pod.environment["CLLAMA_DISPATCH"] = "fast"
    pod.start("-s", str(other))
    assert header(pod, "x-heard") == "one"
    write(other, "two", 5)
    eventually(lambda: header(pod, "x-heard") == "two", "the new version of the script is heard")
    other.unlink()
    eventually(lambda: header(pod, "x-heard") is None, "nobody is heard any more")
    assert header(pod, "x-manager") == "FastManager"
    pod.script.write_text(
        pod.script.read_text(encoding="utf-8").replace("x-manager", "x-now"), encoding="utf-8"
    )
    os.utime(pod.script, (1, pod.script.stat().st_mtime + 5))
    eventually(
        lambda: header(pod, "x-now") == "FastManager",
        "our own script was reloaded, and the dispatch outlived it",
    )
    assert header(pod, "x-manager") is None


def write(script: Path, word: str, later: int) -> None:
    """Write the script with a later modification time, by which the watcher compares."""
    script.write_text(HEARD.format(word=word), encoding="utf-8")
    os.utime(script, (1, script.stat().st_mtime + later))
