"""Numbers with the separators of a language, from the Unicode CLDR. All have Western digits."""

from service.translation import current_language

SEPARATORS = {"de": ".,", "es": ".,", "fr": "\u202f,", "pt-BR": ".,"}  # of thousands, and of decimals
DEFAULT = ",."
UNITS = ("KiB", "MiB", "GiB", "TiB")


def format_number(value: float, digits: int = 0) -> str:
    """Return a number with the separators of the language of the request, rounded to some decimal digits."""
    return f"{value:,.{digits}f}".translate(str.maketrans(DEFAULT, SEPARATORS.get(current_language(), DEFAULT)))


def format_size(size: int) -> str:
    """Return a number of bytes, as in 692 KiB or 1.4 MiB."""
    value = size / 1024
    for unit in UNITS:
        if round(value) < 1000 or unit == UNITS[-1]:
            break
        value /= 1024
    return f"{format_number(value, 1 if unit != 'KiB' and value < 100 else 0)} {unit}"
