"""addons/cllama.py for a mitmdump that tells what waits for its garbage collector.

GET /garbage: how many unreachable objects there are, how many other connections, the thresholds.
The collector itself never runs.
"""

import gc as _gc

from mitmproxy import ctx as _ctx

from claw_mediate.core import http as _http
from claw_mediate.mitm.addon import Cllama as _Cllama
from claw_mediate.readiness import Readiness as _Readiness

_real_own = _Readiness.answer


async def _own(self, request):  # type: ignore[no-untyped-def]
    if request.bare_path != "/garbage":
        return await _real_own(self, request)

    thresholds = _gc.get_threshold()
    _gc.disable()
    others = len(_ctx.master.addons.get("proxyserver").connections) - 1
    return _http.respond_json(
        200, {"objects": _gc.collect(), "others": others, "thresholds": thresholds}
    )


_Readiness.answer = _own  # type: ignore[method-assign, assignment]
addons = [_Cllama()]
