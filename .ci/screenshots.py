"""Takes the screenshots of the console for the README: starts the demo, signs in, and writes docs/console-*.png.

Needs Chromium and what requirements-dev.lock names. The images are reduced to 128 colours, so that they stay small.
"""

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
SIZE = {"width": 1280, "height": 800}
WIDTH = 800  # pixels of an image
AGENT, PASSWORD = "agent@demo.example", "demo-password"  # noqa: S105 (of the demo)
CHAT = "/console/chats/b1695ed2-7632-51a7-afd1-b4ce71621874"  # in English: fonts of other scripts may be missing


def take(url: str, colours: str) -> Image.Image:
    """Return a screenshot of a chat, as an agent sees it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport=SIZE, color_scheme=colours)  # type: ignore[arg-type]
        page.goto(f"{url}/sign-in")
        page.fill("input[name=email]", AGENT)
        page.fill("input[name=password]", PASSWORD)
        page.press("input[name=password]", "Enter")
        page.wait_for_url(f"{url}/")
        page.goto(f"{url}{CHAT}#end")  # loads completely; the long poll of the page does not end
        page.select_option("[data-filters] [name=bot]", label="English")
        page.wait_for_url("**bot=**")
        page.get_by_label("Your message").focus()
        image = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    return image.resize((WIDTH, WIDTH * SIZE["height"] // SIZE["width"]), Image.Resampling.LANCZOS)


def main() -> None:
    """Serve the demo from a temporary folder, and write both images."""
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, str(ROOT / "app.py"), "serve", "--demo", "--data", folder, "--port", "0"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as service:
            try:
                assert service.stdout
                started = (re.search(r"http://127\.0\.0\.1:\d+", text) for text in service.stdout)
                url = next(found[0] for found in started if found)
                for colours in ("light", "dark"):
                    path = ROOT / "docs" / f"console-{colours}.png"
                    take(url, colours).convert("RGB").quantize(128).save(path, optimize=True)
                    print(f"{path.name}: {path.stat().st_size:,} bytes")
            finally:
                service.terminate()


if __name__ == "__main__":
    main()
