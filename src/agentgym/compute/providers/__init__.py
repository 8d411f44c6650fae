"""Those who have machines, one a file; ``api.py`` is how the rented ones are asked."""
