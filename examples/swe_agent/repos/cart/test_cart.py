import unittest

from cart import discounted, names, total, without

LINES = [("pen", 150, 2), ("book", 1200, 1)]


class Total(unittest.TestCase):
    def test_pieces_count(self):
        self.assertEqual(total(LINES), 1500)


class Discount(unittest.TestCase):
    def test_ten_percent_off(self):
        self.assertEqual(discounted(1000, 10), 900)

    def test_nothing_off(self):
        self.assertEqual(discounted(1000, 0), 1000)


class Without(unittest.TestCase):
    def test_the_others_stay(self):
        self.assertEqual(without(LINES, "pen"), [("book", 1200, 1)])


class Works(unittest.TestCase):
    def test_names(self):
        self.assertEqual(names(LINES), ["pen", "book"])


if __name__ == "__main__":
    unittest.main()
