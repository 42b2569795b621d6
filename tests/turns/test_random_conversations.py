"""Random conversations of one agent, compared with a simple oracle: forks, edits,
retries, restarts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from tests.turns.conversing import RETRIES, ConversationDesk, FailedTurn, Piece, Talk
from tests.wires import Wire, anthropic, openai

CALLS = st.lists(st.sampled_from(["desk.balance", "desk.trade"]), max_size=3)
WIRES = st.sampled_from([openai, anthropic])
SHARED = "Done."
"""An answer with which many turns of many conversations end."""


class Conversations(RuleBasedStateMachine):
    """The actions of runners, in any order.

    A talk that a rule does not consume stays: going on with it again forks it.
    """

    talks = Bundle("talks")
    broken = Bundle("broken")

    def __init__(self) -> None:
        super().__init__()
        self.desk = ConversationDesk()

    def teardown(self) -> None:
        self.desk.close()

    @invariant()
    def nothing_is_written_twice(self) -> None:
        services = self.desk.desk.services
        assert services.calls.count("desk.trade") == self.desk.writes
        assert len(services.keys) == len(set(services.keys))

    @rule(target=talks, wire=WIRES, stream=st.booleans(), named=st.booleans())
    def begins(self, wire: Wire, stream: bool, named: bool) -> Talk:
        return Talk(wire, self.desk.words("session") if named else "", stream)

    @rule(target=talks, wire=WIRES, stream=st.booleans(), calls=CALLS)
    def begins_like_others_in_a_session_of_its_own(
        self, wire: Wire, stream: bool, calls: list[str]
    ) -> Talk:
        return self.desk.asks(Talk(wire, self.desk.words("session"), stream), "Buy", calls, SHARED)

    @rule(target=talks, talk=talks, calls=CALLS, shared=st.booleans())
    def asks(self, talk: Talk, calls: list[str], shared: bool) -> Talk:
        return self.desk.asks(
            talk, self.desk.words("ask"), calls, SHARED if shared else self.desk.words("answer")
        )

    @rule(target=talks, talk=talks, calls=CALLS)
    def drops_an_answer_without_words(self, talk: Talk, calls: list[str]) -> Any:
        """Only with OpenAI: Anthropic's API joins two successive user messages, so
        runners send one.
        """
        if talk.wire is not openai:
            return multiple()
        return self.desk.asks(talk, self.desk.words("ask"), calls, "")

    @rule(
        target=talks,
        talk=talks,
        steps=st.lists(st.tuples(CALLS, st.integers(1, 2)), min_size=1, max_size=3),
    )
    def runs_tools_of_its_own(self, talk: Talk, steps: list[tuple[list[str], int]]) -> Talk:
        asked = talk.says(self.desk.words("ask"))
        for calls, native in steps:
            asked = self.desk.hands(asked, calls, native)
        return replace(
            self.desk.turn(asked, ["desk.balance"], self.desk.words("answer")), asked=asked.pieces
        )

    @rule(target=talks, talk=consumes(talks), calls=CALLS)
    def has_the_last_answer_made_again(self, talk: Talk, calls: list[str]) -> Talk:
        """The new words differ: between two equal answers to equal words, one of
        them a fork's, nothing could decide.
        """
        if talk.asked is None:
            return talk
        again = replace(talk, pieces=talk.asked)
        return replace(self.desk.turn(again, calls, self.desk.words("answer")), asked=talk.asked)

    @rule(target=talks, talk=talks, place=st.integers(0, 9), calls=CALLS)
    def goes_back_and_says_something_else(self, talk: Talk, place: int, calls: list[str]) -> Any:
        if not talk.questions:
            return multiple()
        before = replace(talk, pieces=talk.pieces[: talk.questions[place % len(talk.questions)]])
        return self.desk.asks(before, self.desk.words("instead"), calls, self.desk.words("answer"))

    @rule(target=talks, talk=talks, place=st.integers(0, 9), calls=CALLS)
    def changes_what_was_said_and_goes_on(self, talk: Talk, place: int, calls: list[str]) -> Any:
        """If the session is named, nothing else needs to be the same, except an
        answer that the runner has dropped.
        """
        places = [
            at
            for at in talk.questions
            if talk.pieces[at + 1 : at + 2] and talk.pieces[at + 1].messages
        ]
        if not (talk.session and places):
            return multiple()
        at = places[place % len(places)]
        changed = replace(talk, pieces=talk.pieces[:at]).says(self.desk.words("changed"))
        return self.desk.asks(
            changed.then(*talk.pieces[at + 1 :]),
            self.desk.words("ask"),
            calls,
            self.desk.words("answer"),
        )

    @rule(target=talks, talk=talks, place=st.integers(0, 9), calls=CALLS)
    def compacts_what_was_said_and_goes_on(self, talk: Talk, place: int, calls: list[str]) -> Any:
        """The rounds that were hidden before removed messages are gone with them."""
        if not talk.questions:
            return multiple()
        kept = talk.pieces[talk.questions[place % len(talk.questions)] :]
        summary = replace(talk, pieces=()).says(self.desk.words("summary"))
        noted = Piece(({"role": "assistant", "content": "I see."},), ("I see.",))
        return self.desk.asks(
            summary.then(noted, *kept), self.desk.words("ask"), calls, self.desk.words("answer")
        )

    @rule(talk=talks)
    def tries_again_though_it_was_answered(self, talk: Talk) -> None:
        if talk.asked is not None:
            self.desk.hears_again(talk)

    @rule(target=broken, talk=talks, calls=CALLS, steps=st.integers(0, 2))
    def breaks(self, talk: Talk, calls: list[str], steps: int) -> FailedTurn:
        return self.desk.fails(talk, self.desk.words("ask"), calls, steps=steps)

    @rule(target=broken, wire=WIRES, stream=st.booleans(), calls=CALLS)
    def fails_at_the_same_words_in_two_sessions(
        self, wire: Wire, stream: bool, calls: list[str]
    ) -> Any:
        talks = [Talk(wire, self.desk.words("session"), stream) for _ in range(2)]
        return multiple(*(self.desk.fails(talk, "Buy", calls) for talk in talks))

    @rule(target=talks, failed=consumes(broken), told=st.booleans(), calls=CALLS)
    def tries_again(self, failed: FailedTurn, told: bool, calls: list[str]) -> Talk:
        headers = [RETRIES] if told else []
        talk = self.desk.turn(
            failed.asked, calls, self.desk.words("answer"), *headers, played=failed.made
        )
        return replace(talk, asked=failed.asked.pieces)

    @rule(target=broken, failed=consumes(broken))
    def tries_again_and_fails_again(self, failed: FailedTurn) -> FailedTurn:
        self.desk.fails_again(failed)
        return failed

    @rule(
        target=talks,
        failed=consumes(broken),
        calls=CALLS,
        more=st.sampled_from([" [try again]", "\n\nGo on."]),
    )
    def tries_again_in_other_words(self, failed: FailedTurn, calls: list[str], more: str) -> Talk:
        """The calls of the failed turn are replayed only if the runner is at the
        same place of the conversation.
        """
        here = len(failed.asked.pieces) == len(failed.before.pieces) + 1
        played = failed.made if here else ()
        return self.desk.asks(
            failed.before, failed.words + more, calls, self.desk.words("answer"), played=played
        )

    @rule(target=talks, failed=consumes(broken), calls=CALLS)
    def says_something_else_after_a_failure(self, failed: FailedTurn, calls: list[str]) -> Talk:
        return self.desk.asks(
            failed.before, self.desk.words("other"), calls, self.desk.words("answer")
        )

    @rule(target=talks, failed=consumes(broken), calls=CALLS)
    def goes_on_behind_a_failure(self, failed: FailedTurn, calls: list[str]) -> Any:
        """The calls of the failed turn are at the place of its missing answer."""
        if failed.asked.wire is not openai:
            return multiple()
        asked = failed.asked.then(Piece((), (), failed.made))
        return self.desk.asks(asked, self.desk.words("other"), calls, self.desk.words("answer"))

    @rule(gracefully=st.booleans())
    def the_proxy_begins_anew(self, gracefully: bool) -> None:
        self.desk.restarts(gracefully=gracefully)


Conversations.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestConversations = pytest.mark.requirement("continuity:any-conversation")(Conversations.TestCase)
