"""The code on the pages runs: each block of Python in its order, in one namespace a page."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/python.md", "python/README.md")
#: Behind `python` in a fence: the block needs a GPU or several processes, and only has to be Python.
NOT_RUN = "no-run"
FENCE = re.compile(r"^```(\w*)[ ]*([^\n]*)\n(.*?)^```[ ]*$", re.DOTALL | re.MULTILINE)
#: What `convert` prints on the page stands behind the block that makes it print.
PRINTED = "isonorm converted"


def blocks(page: str) -> list[tuple[str, str, str, int]]:
    """Language, marks, text and first line of each fenced block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(*match.groups(), text.count("\n", 0, match.start(3)) + 1) for match in FENCE.finditer(text)]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run(page):
    if page == "docs/python.md":
        pytest.importorskip("torchvision")
        pytest.importorskip("numpy")
    namespace = {"__name__": "page"}
    said = ""
    ran = 0
    for language, marks, text, line in blocks(page):
        if language == "text" and text.startswith(PRINTED):
            assert text in said
        if language != "python":
            continue
        assert marks in ("", NOT_RUN)
        # Errors and tracebacks have the page's own line numbers.
        code = compile("\n" * (line - 1) + text, str(ROOT / page), "exec")
        if marks == NOT_RUN:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        said = printed.getvalue()
        ran += 1
        expect_comments(text, said)
    assert ran > 1


def expect_comments(text: str, said: str) -> None:
    """`print(…)   # what it prints, perhaps to an ellipsis`."""
    for comment in re.findall(r"print\([^\n]*\)\s+# (.+)$", text, re.MULTILINE):
        assert comment.partition(" …")[0] in said


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if target.startswith("https://github.com/isonorm/isonorm/blob/main/"):
            path = ROOT / target.partition("/blob/main/")[2]
        elif "://" in target:
            continue
        else:
            path = (ROOT / page).parent / target
        assert path.exists(), f"{page}: {target}"
