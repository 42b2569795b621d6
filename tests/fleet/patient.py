"""addons/cllama.py with more time for its state: on a busy machine Valkey may get no CPU for long.

What a proxy does without its state is the matter of ``tests/failures``.
"""

from claw_mediate.mitm.addon import Cllama as _Cllama
from claw_state.valkey.client import ValkeyClient as _Link

assert _Link.__init__.__kwdefaults__ is not None
_Link.__init__.__kwdefaults__["timeout"] = 20.0

addons = [_Cllama()]
