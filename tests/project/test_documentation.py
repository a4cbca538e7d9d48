"""Links and paths in the documentation lead to files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def headings(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as on GitHub."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page without a file or heading."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if re.match(r"https?://", link):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in headings(target)):
            broken.append(f"{page.name}: {link}")
    return broken


def test_links_lead_to_files_and_headings() -> None:
    assert not [link for page in PAGES for link in broken_links(page)]


def test_paths_exist() -> None:
    """A path with an ellipsis or an N is a pattern."""
    pattern = r"`((?:service|tests|docs|static|templates|\.ci)/[\w./-]+)`"
    named = {path for page in PAGES for path in re.findall(pattern, page.read_text("utf-8"))}
    assert named
    assert not [path for path in named if not (ROOT / path).exists() and "_N" not in path]


def test_index_links_every_page() -> None:
    index = (ROOT / "README.md").read_text("utf-8")
    assert not [page.name for page in PAGES if page.name != "README.md" and f"{page.name})" not in index]
