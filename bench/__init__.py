"""Benchmarks: times, each compared with a bound or another library measured in the same run.

Run from the root of a checkout: ``python -m bench NAME --help``.
"""
