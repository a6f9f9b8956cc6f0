"""Objects in the words of a message: what a user would call them."""

from __future__ import annotations


def kind_of(value: object) -> str:
    """What an object is, with its article: its class's ``user_name`` if it has one, else its type.

    Example:
        >>> kind_of(1.5), kind_of([]), kind_of(None), kind_of(int)
        ('a float', 'a list', 'None', 'the class int')
    """
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = getattr(type(value), "user_name", None)
    return name if isinstance(name, str) else with_article(type(value).__name__)


def with_article(noun: str) -> str:
    """A noun with "a" or "an".

    Example:
        >>> with_article("int")
        'an int'
    """
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
