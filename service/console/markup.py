"""HTML of texts: links, and matches of a search."""

import html
import re
import unicodedata

EXCERPT = 300  # characters of a result
LEAD = 60  # characters before the first match

# White space, quotes and characters that change the direction of writing end an address.
_ADDRESS = re.compile(r"https?://[^\s<>\"'`\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+", re.IGNORECASE)
_TRAILING = ".,;:!?…、。，！？"
_BRACKETS = {")": "(", "]": "[", "}": "{"}


def linked(text: str) -> str:
    """Return a text as HTML in which http and https addresses are links."""
    parts, end = [], 0
    for match in _ADDRESS.finditer(text):
        address = _without_trailing_characters(match[0])
        if address.endswith("//"):
            continue
        parts.append(html.escape(text[end : match.start()]))
        escaped = html.escape(address)
        parts.append(f'<a href="{escaped}" target="_blank" rel="noopener noreferrer nofollow">{escaped}</a>')
        end = match.start() + len(address)
    return "".join([*parts, html.escape(text[end:])])


def _without_trailing_characters(address: str) -> str:
    """Return an address without the punctuation of the sentence that it ends, and without an unmatched bracket."""
    while address and (last := address[-1]):
        is_unmatched = last in _BRACKETS and address.count(last) > address.count(_BRACKETS[last])
        if last not in _TRAILING and not is_unmatched:
            break
        address = address[:-1]
    return address


def highlighted(text: str, search: str) -> str:
    """Return the part of a text around the first match of a search as HTML in which the matches are marked."""
    text = unicodedata.normalize("NFC", text)
    pattern = re.compile(re.escape(unicodedata.normalize("NFC", search)), re.IGNORECASE)
    first = pattern.search(text)
    start = max(first.start() - LEAD, 0) if first else 0
    excerpt = text[start : start + EXCERPT]
    parts, end = ["…" * bool(start)], 0
    for match in pattern.finditer(excerpt):
        parts += [html.escape(excerpt[end : match.start()]), f"<mark>{html.escape(match[0])}</mark>"]
        end = match.end()
    return "".join([*parts, html.escape(excerpt[end:]), "…" * (start + EXCERPT < len(text))])
