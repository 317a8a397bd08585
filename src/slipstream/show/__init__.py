"""Words, tables, pages and pictures of runs, made from the numbers that solvers give."""
