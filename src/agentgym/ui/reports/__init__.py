"""Reports of runs, evaluations and comparisons, as Markdown and as HTML files."""
