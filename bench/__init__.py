"""Benchmarks: figures with the bound that they are measured against, in the same run.

Every benchmark prints a table and writes JSON with machine, versions and commit.
"""
