"""Write reports of runs, evaluations and comparisons, as Markdown and HTML files."""
