"""Reference cases on the user's own machine: `slipstream validate`.

A *reference case* runs a small simulation, or a transform, and compares its results with theory or
literature (`reference_solutions`), each within a fixed tolerance.
"""
