"""Output of `slipstream verify`: no key is broken by the width of a table."""

from rich.console import Console

from slipstream.show.console import PartVerdict, verification_table


def test_long_reasons_are_lines_below_the_table():
    problem = "more states: output.checkpoint_interval"
    actual = PartVerdict("state 000000000020, step 20, t = 0.5", 20, 40, problem=problem)
    console = Console(width=60, record=True, quiet=True)
    console.print(verification_table([actual]))
    assert "checkpoint" not in console.export_text()
    assert actual.remarks == [f"steps 20 to 40: {problem}"]
