"""Pseudospectral turbulence in periodic boxes.

`NavierStokesStep` records the time step, `SpectralSimulation` runs a case with it.
"""
