"""Tools of a library's loans desk; training answers in their place, from the file."""

from agentgym import tool


@tool
def find_book(title: str) -> dict[str, str]:
    """Look a book up in the catalogue; says its copy id and whether it is in.

    Args:
        title: Of the book, as the reader says it.
    """
    raise NotImplementedError("ask the library's own system here")


@tool
def lend_copy(copy_id: str, card: int) -> str:
    """Lend a copy to a reader.

    Args:
        copy_id: From the catalogue.
        card: Number of the reader's card.
    """
    raise NotImplementedError("ask the library's own system here")


@tool
def return_copy(copy_id: str) -> str:
    """Take a copy back.

    Args:
        copy_id: As printed on the label.
    """
    raise NotImplementedError("ask the library's own system here")


@tool
def extend_loan(copy_id: str, weeks: int = 2) -> str:
    """Extend a loan.

    Args:
        copy_id: Of the copy that is lent.
        weeks: By how many weeks.
    """
    raise NotImplementedError("ask the library's own system here")


@tool
def reserve_book(title: str, card: int) -> str:
    """Put a reader on the waiting list of a book that is out.

    Args:
        title: Of the book.
        card: Number of the reader's card.
    """
    raise NotImplementedError("ask the library's own system here")


TOOLS = [find_book, lend_copy, return_copy, extend_loan, reserve_book]
