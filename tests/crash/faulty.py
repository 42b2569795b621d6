"""addons/cllama.py for a mitmdump that dies at the point in ``CRASH_AT``. For tests alone."""

import json as _json
import os as _os
from pathlib import Path as _Path

from claw_mediate.mitm.addon import Cllama as _Cllama
from claw_mediate.mitm.flow_state import ChunkSource as _ChunkSource
from tests.crash.faults import Doom as _Doom
from tests.crash.faults import Fate as _Fate

_doom = _json.loads(_os.environ["CRASH_AT"])
_fate = _Fate(_Doom(*_doom) if _doom else None, _Path(_os.environ["CRASH_DIED"]))
_fate.arm()
_ChunkSource.pull = _fate.around("a chunk", _ChunkSource.pull)  # type: ignore[method-assign]

addons = [_Cllama()]
