"""addons/cllama.py for a mitmdump that dies at the point in ``CRASH_AT``. For tests alone."""

import json as _json
import os as _os
from pathlib import Path as _Path

from claw_mediate.mitm.addon import Cllama as _Cllama
from claw_mediate.mitm.flow_state import ChunkSource as _ChunkSource
from tests.crash.faults import KillPoint as _KillPoint
from tests.crash.faults import PointCounter as _PointCounter

_kill_point = _json.loads(_os.environ["CRASH_AT"])
_counter = _PointCounter(
    _KillPoint(*_kill_point) if _kill_point else None, _Path(_os.environ["CRASH_DIED"])
)
_counter.arm()
_ChunkSource.pull = _counter.around("a chunk", _ChunkSource.pull)  # type: ignore[method-assign]

addons = [_Cllama()]
