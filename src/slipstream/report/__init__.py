"""What people see of a run: the announcement, the progress, the summary and the pictures."""
