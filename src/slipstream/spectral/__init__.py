"""Equations of any kind in periodic boxes, by the pseudospectral method.

`SpectralStep` records the time step of a `SpectralProblem`, `SpectralSimulation` runs a case with
it. `initial` sets the state, `forcing` drives it, `diagnostics` and `statistics` tell of it.
"""
