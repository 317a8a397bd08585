"""Simulations as Python objects, of every family: stepped, looked at and changed from a program.

`Turbulence`, `Flow`, `PorousFlow` and `Advection` are made from arguments, `load` makes one from a
case, and `open_run` reads what a run has written. All are names of ``slipstream`` itself, which
imports a family when it is asked for.
"""
