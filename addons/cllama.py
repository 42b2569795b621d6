"""The mitmproxy entry: ``mitmdump -s addons/cllama.py`` is the sidecar.

README.md tells how to point a runner at it.

mitmproxy puts this folder first on ``sys.path`` and takes every name in this module for a hook if
it can: so the folder holds this one file, nothing imports it, and it names nothing but ``addons``.
"""

from claw_mediate.mitm.addon import Cllama as _Cllama

addons = [_Cllama()]
