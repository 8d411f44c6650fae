import unittest

from dates import day_name, is_leap, is_open, minutes


class Leap(unittest.TestCase):
    def test_centuries(self):
        self.assertFalse(is_leap(1900))
        self.assertTrue(is_leap(2000))

    def test_years(self):
        self.assertTrue(is_leap(2024))
        self.assertFalse(is_leap(2023))


class Minutes(unittest.TestCase):
    def test_hours_have_sixty(self):
        self.assertEqual(minutes("14:30"), 870)


class Open(unittest.TestCase):
    def test_from_the_first_minute(self):
        self.assertTrue(is_open("09:00"))

    def test_not_at_the_end(self):
        self.assertFalse(is_open("18:00"))


class Works(unittest.TestCase):
    def test_days(self):
        self.assertEqual(day_name(6), "Sun")


if __name__ == "__main__":
    unittest.main()
