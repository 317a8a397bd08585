"""Output that users choose: its contents, points, times and format.

It is declared once, for cases and for Python, in `slipstream.case.output_tables`.
"""
