"""Opens every page of the built site on 400 px, in a real browser: none may have to be scrolled sideways.

`python docs/narrow.py` ends with 1 where one is wider, and says what of it is.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SITE = Path(__file__).resolve().parent.parent / "build" / "docs"
WIDTH = 400
PAGE = """<!doctype html><meta charset="utf-8"><body><script>
const wide = {};
(async () => {
  for (const page of PAGES) {
    const frame = document.createElement("iframe");
    frame.style = "width:WIDTHpx; height:800px; border:0";
    await new Promise((done) => { frame.onload = done; frame.src = page; document.body.append(frame); });
    const seen = frame.contentDocument;
    if (seen.documentElement.scrollWidth > WIDTH) {
      const beyond = (part) => part.getBoundingClientRect().right > WIDTH && !part.closest("pre");
      const parts = [...seen.querySelectorAll("article *")].filter(beyond);
      wide[page] = parts.slice(0, 3).map((part) => part.textContent.slice(0, 60));
    }
    frame.remove();
  }
  document.body.dataset.wide = JSON.stringify(wide);
})();
</script>"""


def wide(pages: list[Path]) -> dict[str, list[str]]:
    """Address of each page that is wider -> how its first wide parts begin."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "narrow.html")
        addresses = json.dumps([each.as_uri() for each in pages])
        page.write_text(PAGE.replace("PAGES", addresses).replace("WIDTH", str(WIDTH)), "utf-8")
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        more = ["--allow-file-access-from-files", "--virtual-time-budget=600000", "--dump-dom", page.as_uri()]
        told = subprocess.run([*browser, *more], capture_output=True, text=True, check=True, timeout=300)
    found = re.search(r'data-wide="([^"]*)"', told.stdout)
    if found is None:
        raise SystemExit(f"the browser says nothing:\n{told.stderr[-2000:]}")
    return dict(json.loads(html.unescape(found[1])))


def main() -> int:
    pages = sorted(page for page in SITE.rglob("*.html") if page.name != "genindex.html")
    found = wide(pages)
    for page, parts in found.items():
        print(f"{page.removeprefix(SITE.as_uri())} is wider than {WIDTH} px: {parts}")
    print(f"{len(pages) - len(found)} of {len(pages)} pages fit on {WIDTH} px")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
