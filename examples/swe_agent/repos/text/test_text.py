import unittest

from text import backwards, count, shorten, title


class Title(unittest.TestCase):
    def test_first_letters(self):
        self.assertEqual(title("the old house"), "The Old House")


class Shorten(unittest.TestCase):
    def test_dots_count(self):
        self.assertEqual(shorten("abcdefghij", 8), "abcde...")

    def test_short_ones_stay(self):
        self.assertEqual(shorten("abc", 8), "abc")


class Count(unittest.TestCase):
    def test_capitals(self):
        self.assertEqual(count("The cat and the dog", "the"), 2)


class Works(unittest.TestCase):
    def test_backwards(self):
        self.assertEqual(backwards("abc"), "cba")


if __name__ == "__main__":
    unittest.main()
