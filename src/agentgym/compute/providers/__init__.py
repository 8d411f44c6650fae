"""Those who have machines, one a file; ``api`` and ``sky_command`` ask them."""
