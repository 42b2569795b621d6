"""The compiler: pod YAML and descriptors in, one policy for each agent out (docs/spec/compile.md).

``check_pod`` and ``compile_pod`` of ``claw_compile.compiler`` are the way in. Phases return
diagnostics as values; only ``load`` reads the disk, only ``write`` writes it; no network, no clock.
"""
