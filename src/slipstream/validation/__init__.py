"""Reference cases on the user's own machine: `slipstream validate`.

A *reference case* runs a small simulation, or a transform, and compares figures of it with those of
theory or literature (`reference_solutions`), each within a tolerance that is known beforehand.
Every family has a module of them.
"""
