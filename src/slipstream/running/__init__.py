"""Running a case with a simulation of any solver family: the loop, output, records and results.

`run_case.run_case` runs one to its end: it announces it, writes what the case asks for, and sums
up. A run that is interrupted or blows up ends in order, with one line. `resuming.resume_run` goes
on with one in its folder, and `trial_run.check_run` says what one would take.
"""
