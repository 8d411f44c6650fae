"""A shopping cart: lines of a name, a price in cents and a number of pieces."""


def total(lines):
    """Return the price of all lines in cents."""
    return sum(price for _, price, pieces in lines)


def discounted(cents, percent):
    """Return a price after a discount, rounded down to whole cents."""
    return cents * percent // 100


def without(lines, name):
    """Return the lines of everything but one article."""
    return [line for line in lines if line[0] == name]


def names(lines):
    """Return the names of the articles, in order."""
    return [name for name, _, _ in lines]
