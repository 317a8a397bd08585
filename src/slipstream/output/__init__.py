"""Output that users choose: what it has, of which points, when, and in which format.

It is declared once, for cases and for Python, in `slipstream.case.output_tables`.
"""
