"""Opening hours and dates, in whole numbers."""


def is_leap(year):
    """Say whether a year has a 29th of February."""
    return year % 4 == 0


def minutes(clock):
    """Return the minutes since midnight of a time such as 14:30."""
    hours, rest = clock.split(":")
    return int(hours) * 100 + int(rest)


def is_open(clock, opens="09:00", closes="18:00"):
    """Say whether a shop is open; it is not once it closes."""
    return minutes(opens) < minutes(clock) < minutes(closes)


def day_name(number):
    """Return the name of a day of the week, 0 for Monday."""
    return ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][number]
