"""Small things that are done to text."""


def title(text):
    """Return a text with a capital letter at the beginning of each word."""
    return " ".join(word.upper() for word in text.split())


def shorten(text, most):
    """Return a text of at most so many characters; what is cut ends with three dots."""
    if len(text) <= most:
        return text
    return text[:most] + "..."


def count(text, word):
    """Return how often a word stands in a text, however it is written."""
    return text.split().count(word)


def backwards(text):
    """Return a text from its end to its beginning."""
    return text[::-1]
