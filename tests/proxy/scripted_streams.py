"""addons/cllama.py for a mitmdump whose mediator streams what a test asks for in the query.

    POST PATH?name=a&size=1000&count=5&end=cut    five chunks of a thousand bytes, and then a cut
    POST /early?…                                 the same, before the body of the request is there
    GET /made                                     for each name: chunks made, and whether it is over
    GET /go                                       lets the next ``hold`` of a stream go on

``end`` is ``whole``, ``cut`` or ``fails``. ``beat``: after the chunks the stream waits for ``/go``,
and then makes a keepalive. With TEST_NARROW the kernel takes few bytes for each runner.
"""

import asyncio as _asyncio
import os as _os
from collections import Counter as _Counter
from urllib.parse import parse_qs as _parse_qs

from claw_mediate.core import http as _http
from claw_mediate.mediator import Mediator as _Mediator
from claw_mediate.readiness import Readiness as _Readiness
from tests.proxy import narrow as _narrow

_made: dict[str, int] = _Counter()
_over: set[str] = set()
_go = _asyncio.Semaphore(0)


async def _chunks(name, size, count, end, beat):  # type: ignore[no-untyped-def]
    try:
        for _ in range(count):
            _made[name] += 1
            yield b"x" * size
            if beat:
                # A chunk that is not ready at once is written by itself.
                await _asyncio.sleep(0)

        if beat:
            await _go.acquire()
            _made[name] += 1
            yield _http.KeepaliveChunk(b": beat\n\n")
            await _go.acquire()

        if end == "cut":
            raise _http.AnswerCutError("the provider broke off")
        if end == "fails":
            raise ValueError("a bug")
        yield b"end"
    finally:
        _over.add(name)


def _answer(request):  # type: ignore[no-untyped-def]
    query = {key: value[0] for key, value in _parse_qs(request.path.partition("?")[2]).items()}
    chunks = _chunks(
        query["name"], int(query["size"]), int(query["count"]), query["end"], "beat" in query
    )
    headers = [
        ("content-type", "text/event-stream"),
        ("x-can-be-cut", str(request.can_be_cut).lower()),
    ]
    return _http.RunnerResponse(200, headers, chunks, streaming=True)


async def _own(self, request):  # type: ignore[no-untyped-def]
    match request.bare_path:
        case "/early":
            return _answer(request)
        case "/made":
            return _http.respond_json(200, {"made": _made, "over": sorted(_over)})
        case "/go":
            _go.release()
            return _http.respond_json(200, {})
        case _:
            return await _real_own(self, request)


async def _exchange(_self, _admitted, request):  # type: ignore[no-untyped-def]
    return _answer(request)


_real_own = _Readiness.answer
_Readiness.answer = _own  # type: ignore[method-assign, assignment]
_Mediator.exchange = _exchange  # type: ignore[method-assign, assignment]
addons = _narrow.addons if "TEST_NARROW" in _os.environ else _narrow.addons[:1]
