"""How people ask: phrases per family, references to files, manners."""
