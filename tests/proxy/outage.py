"""A running pod that loses its state: the rules meanwhile, and the ways in which a
server of the state fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2
from starlette.responses import JSONResponse

from tests.peers import calls, text
from tests.proxy.pod import Pod, headers
from tests.state.relay import Relay
from tests.state.server import SharedState

PASSWORD = "planted-password-0001"


def furnish(pod: Pod) -> None:
    """Give a pod the agents and the service of a ``StatefulPod``."""
    pod.agent("analyst", *pod.balance_and_trade())
    pod.agent("plain")
    pod.service.routes = {
        ("GET", "/balance"): JSONResponse({"usd": 1}),
        ("POST", "/trade"): JSONResponse({"order": 1}),
    }


@dataclass
class StatefulPod:
    """A running pod: ``analyst`` reads balances and trades, ``plain`` has no tools."""

    pod: Pod

    def asks(
        self, *messages: dict[str, str], agent: str = "analyst", **more: str
    ) -> httpx2.Response:
        sent = {"model": "gpt-test", "messages": list(messages)}
        url = f"{self.pod.url}/v1/chat/completions"
        return httpx2.post(url, headers=headers(self.pod, agent) | more, json=sent, timeout=20)

    def turn(self, *messages: dict[str, str], trades: str = "") -> tuple[str, list[dict[str, Any]]]:
        """Run a turn that reads the balance and trades; return the runner's answer
        and the results that the model got.
        """
        made = calls(("c1", "desk__balance", {}), ("c2", "desk__trade", {"symbol": trades}))
        self.pod.provider.says(made, text("Done."))
        answer = self.asks(*messages)
        assert answer.status_code == 200
        told = [json.loads(content) for content in self.results()]
        return answer.json()["choices"][0]["message"]["content"], told[-2:]

    def results(self) -> list[str]:
        """Return all tool results in the last request to the model."""
        messages = self.pod.provider.received[-1].json["messages"]
        return [message["content"] for message in messages if message["role"] == "tool"]

    def traded(self) -> list[str]:
        made = [call for call in self.pod.service.received if call.path == "/trade"]
        return [call.json["symbol"] for call in made]

    def told(self, lines: int = 0) -> list[str]:
        """Return the log's events about the state, after so many lines."""
        events = self.pod.log()[lines:]
        return [
            event.get("error", event.get("state"))
            for event in events
            if event["type"] in ("error", "state")
        ]

    def goes_on_but_for_writes(self, way: str) -> None:
        """Check the rules while the state is gone."""
        for number in range(2):
            asked = {"role": "user", "content": f"Buy more {way} {number}"}
            words, (balance, trade) = self.turn(asked, trades="refused")
            assert words == "Done."
            assert balance["data"] == {"usd": 1}
            assert trade["error"]["message"].startswith(
                "The call was not made: the proxy can't keep its journal now."
            )
        self.pod.provider.says(text("Hello."))
        assert self.asks({"role": "user", "content": "Hi"}, agent="plain").status_code == 200
        assert not self.ready()

    def is_as_before(self, asked: dict[str, str], way: str) -> None:
        """Check that all is well again; ``asked`` began the turn that traded before."""
        self.pod.provider.says(text("Yes."))
        answer = {"role": "assistant", "content": "Done."}
        assert self.asks(asked, answer, {"role": "user", "content": "Sure?"}).is_success
        assert json.loads(self.results()[-1])["data"] == {"order": 1}, (
            "what was hidden is there again"
        )
        assert self.turn({"role": "user", "content": f"Sell {way}"}, trades=f"{way} behind")[1][1][
            "ok"
        ]
        assert self.traded()[-2:] == [f"{way} before", f"{way} behind"]

    def ready(self) -> bool:
        return httpx2.get(f"{self.pod.url}/ready").status_code == 200


@dataclass
class Outage(StatefulPod):
    """A running pod with the server of its state, and a relay in front of it."""

    server: SharedState
    relay: Relay


type Change = Callable[[Outage], object]


def commands(*made: str) -> Change:
    """Return a change that sends these commands to the server."""
    return lambda on: [on.server.asks(*command.split(" ")) for command in made]


def refuses(words: str) -> Change:
    return lambda on: setattr(on.relay, "refusal", f"-{words}\r\n".encode())


def password(new: str) -> Change:
    """Return a change that gives the server a new password and closes its connections."""

    def change(on: Outage) -> None:
        on.server.asks("CONFIG", "SET", "requirepass", new)
        on.server.password = new
        on.server.asks("CLIENT", "KILL", "TYPE", "normal")

    return change


def passes(on: Outage) -> None:
    on.relay.passes()


WAYS: dict[str, tuple[Change, Change]] = {
    "frozen": (lambda on: on.server.freeze(), lambda on: on.server.thaw()),
    "killed": (lambda on: on.server.kill(), lambda on: on.server.start()),
    "slow": (lambda on: on.relay.holds(), passes),
    "answers-cut": (lambda on: setattr(on.relay, "cuts", True), passes),
    "password-changed": (password("another"), password(PASSWORD)),
    "replica": (commands("REPLICAOF 127.0.0.1 1"), commands("REPLICAOF NO ONE")),
    "full": (commands("CONFIG SET maxmemory 1"), commands("CONFIG SET maxmemory 0")),
    "loading": (refuses("LOADING Redis is loading the dataset in memory"), passes),
    "cannot-persist": (
        refuses("MISCONF Errors writing to the AOF file: No space left on device"),
        passes,
    ),
}
"""The ways of failing: how the state is lost, and how it comes back."""
