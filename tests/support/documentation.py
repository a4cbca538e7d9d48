"""The code blocks of docs/operating.md."""

import re

from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "operating.md").read_text()


def code_block(language: str, word: str = "") -> str:
    """Return the only block of docs/operating.md in a language that contains a word."""
    blocks: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.M | re.S)
    (block,) = [block for name, block in blocks if name == language and word in block]
    return block
