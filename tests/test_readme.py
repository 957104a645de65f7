"""Every Python block of the README and the docs runs, each in a namespace of its own, and warns of nothing."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            line = text.count("\n", 0, block.start(1)) + 1
            name = page.relative_to(ROOT).as_posix()
            yield pytest.param(name, line, block.group(1), id=f"{name}:{line}")


@pytest.mark.parametrize(("page", "line", "source"), list(blocks()))
def test_a_block_of_the_pages_runs(page, line, source):
    # Empty lines in front: a traceback names the line of the page.
    code = compile("\n" * (line - 1) + source, ROOT / page, "exec")
    exec(code, {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_fence_of_a_page_is_closed_and_named(page):
    fences = re.findall(r"^```.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) % 2 == 0
    assert set(fences[1::2]) <= {"```"}
    assert set(fences[::2]) <= {"```python", "```sh", "```text"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_of_the_repository_leads_to_one(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_every_test_file_that_a_page_names_exists():
    for page in PAGES:
        for name in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", page.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), (page.name, name)
