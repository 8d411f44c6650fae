import unittest

from shelf import Shelf


def filled():
    shelf = Shelf()
    shelf.add("Emma", 1815)
    shelf.add("Dune", 1965)
    shelf.add("Walden", 1854)
    return shelf


class Add(unittest.TestCase):
    def test_a_book_comes_once(self):
        shelf = filled()
        shelf.add("Emma", 1815)
        self.assertEqual(len(shelf), 3)


class Oldest(unittest.TestCase):
    def test_by_year(self):
        self.assertEqual(filled().oldest(), "Emma")

    def test_an_empty_shelf(self):
        self.assertIsNone(Shelf().oldest())


class Before(unittest.TestCase):
    def test_that_year_is_left_out(self):
        self.assertEqual(filled().before(1854), ["Emma"])


class Works(unittest.TestCase):
    def test_length(self):
        self.assertEqual(len(filled()), 3)


if __name__ == "__main__":
    unittest.main()
