"""What people see of a run: the live terminal view, tables, and the report."""
