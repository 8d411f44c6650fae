"""A shelf of books, each a title and a year."""


class Shelf:
    """Books in the order in which they came."""

    def __init__(self):
        self.books = []

    def add(self, title, year):
        """Put a book on the shelf, unless it is there already."""
        self.books.append((title, year))

    def oldest(self):
        """Return the title of the oldest book, None if there is none."""
        return min(self.books)[0]

    def before(self, year):
        """Return the titles of books from before a year."""
        return [title for title, made in self.books if made <= year]

    def __len__(self):
        return len(self.books)
