"""Equations of any kind in periodic boxes, by the pseudospectral method.

`SpectralStep` records the time step of a `SpectralProblem`, `SpectralSimulation` runs a case with
it. `initial_conditions` sets the state, `forcing` drives it, `energy_budget`, `spectrum` and
`statistics` measure it.
"""
