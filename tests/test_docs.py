"""The docs: what is generated is current, nothing is missing, every link leads somewhere, every block runs."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import bub
from bub.errors import BubError
from bub.hooks.dispatch import specs_of
from bub.hooks.specs import BubHookSpecs
from tools.code_blocks import NOX_COMMAND, Block, BlockError, Page, jobs, nox_sessions, read_blocks, read_commands
from tools.generate_docs import LINES, PAGES, documented, generated_parts, public_errors, rendered

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FILES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]
WITH_BLOCKS = [file for file in FILES if file.name != "CHANGELOG.md"]

by_name = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
on_every_page = pytest.mark.parametrize("file", WITH_BLOCKS, ids=lambda file: file.name)


def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


# --------------------------------------------------------------------------------------------------- contents


@by_name
def test_generated_parts_are_current(file: Path) -> None:
    assert rendered(read(file)) == read(file), "run python tools/generate_docs.py"


def test_every_hook_is_on_exactly_one_page_in_the_order_of_the_declaration() -> None:
    assert [hook for hooks in PAGES.values() for hook in hooks] == list(specs_of(BubHookSpecs))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_hooks_has_its_table_and_a_section_for_each_hook(page: str) -> None:
    parts = generated_parts(read(DOCS / f"{page}.md"))
    assert parts == [f"table {page}", *(f"hook {hook}" for hook in PAGES[page])]


@pytest.mark.parametrize(("page", "hook"), [(page, hook) for page, hooks in PAGES.items() for hook in hooks])
def test_every_hook_has_an_example_that_implements_it(page: str, hook: str) -> None:
    sections = re.split(r"^## ", read(DOCS / f"{page}.md"), flags=re.MULTILINE)
    section = next(section for section in sections if section.startswith(f"`{hook}`"))
    code = [block.source for block in read_blocks(f"## {section}") if block.language == "python"]
    assert any(re.search(rf"@hookimpl(\(.*\))?\.{hook}\b", source) for source in code)


def test_the_four_lines_of_every_hook_can_be_read() -> None:
    for spec in specs_of(BubHookSpecs).values():
        assert tuple(documented(spec)) == LINES


def every_error() -> Iterator[type[BubError]]:
    for module in pkgutil.walk_packages(bub.__path__, "bub."):
        if module.name != "bub.__main__":
            importlib.import_module(module.name)
    waiting: list[type[BubError]] = [BubError]
    while waiting:
        error = waiting.pop()
        if error.__module__.startswith("bub."):
            yield error
            waiting += error.__subclasses__()


def test_every_error_is_on_the_page_of_errors() -> None:
    text = read(DOCS / "errors.md")
    assert "errors" in generated_parts(text)
    assert not {error.__name__ for error in every_error() if f"`{error.__name__}`" not in text}


def test_every_error_of_the_table_has_more_than_a_line_in_the_table() -> None:
    _, _, sections = read(DOCS / "errors.md").partition("<!-- /generated -->")
    assert not [error.__name__ for error in public_errors() if error.__name__ not in sections]


def test_the_readme_has_the_two_commands_and_is_short() -> None:
    text = read(ROOT / "README.md")
    consoles = [block for block in read_blocks(text) if block.language == "console"]
    commands = [command for console in consoles for command, _ in read_commands(console)]
    assert """python -m pip install '.[app,local]' && bub run "hello\"""" in commands
    assert NOX_COMMAND in commands
    assert len(text.splitlines()) <= 90
    assert NOX_COMMAND in read(ROOT / ".ci" / "run")
    assert {"tests", "typecheck"} <= set(nox_sessions().default)
    assert "python -m nox -s e2e" in read(ROOT / ".ci" / "run")
    assert "e2e" in nox_sessions().known


def test_the_settings_on_the_typing_page_name_all_four_checkers() -> None:
    settings = next(block for block in read_blocks(read(DOCS / "typing.md")) if block.title == "pyproject.toml")
    assert re.findall(r"^\[tool\.(\w+)", settings.source, flags=re.MULTILINE) == ["mypy", "pyright", "ty", "pyrefly"]


@by_name
def test_no_page_names_a_path_of_one_machine(file: Path) -> None:
    assert not re.findall(r"(?<![\w.])/(?:work|opt|root|home|tmp)/\S*", read(file))


# ------------------------------------------------------------------------------------------------------ links


def anchors(text: str) -> set[str]:
    """What a link may lead to: headings as GitHub makes anchors of them, and anchors written by hand."""
    prose = "\n".join(part for index, part in enumerate(text.split("```")) if index % 2 == 0)
    headings = re.findall(r"^#+ (.*)$", prose, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)"', prose))


def links(text: str) -> list[str]:
    prose = "\n".join(part for index, part in enumerate(text.split("```")) if index % 2 == 0)
    return re.findall(r"\]\(([^)\s]+)\)", prose)


@by_name
def test_every_internal_link_leads_somewhere(file: Path) -> None:
    dead: list[str] = []
    for link in links(read(file)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        if not target.is_file() or (anchor and anchor not in anchors(read(target))):
            dead.append(link)
    assert not dead


def test_the_index_links_every_page() -> None:
    linked = {link.partition("#")[0] for link in links(read(DOCS / "index.md"))}
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} <= linked


# ----------------------------------------------------------------------------------------------------- blocks


def run_all(text: str, page: Page) -> None:
    for job in jobs(text, page):
        job.run()


@on_every_page
def test_every_fence_belongs_to_a_block_that_runs(file: Path) -> None:
    text = read(file)
    page = Page("asyncio")
    every = list(jobs(text, page))
    shown = sum(block.language == "text" for block in read_blocks(text))
    assert len(every) + shown == len(read_blocks(text)) == len(re.findall(r"^```", text, flags=re.MULTILINE)) / 2
    assert "skip" not in " ".join(re.findall(r"<!--.*?-->", text, flags=re.DOTALL))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```\nx\n```\n", 'expected "```language"'),
        ("```python skip\nx\n```\n", 'expected "```language"'),
        ("```ruby\nx\n```\n", "expected a block that runs, got 'ruby'"),
        ("```bash\nls\n```\n", "expected a block that runs, got 'bash'"),
        ("```text\nx\n```\n", "expected a block that runs, got 'text'"),
        ("```console\n$ ls\n```\n\n```text\nx\n```\n", "expected a block that runs, got 'text'"),
        ("~~~python\nx\n~~~\n", 'expected "```language"'),
        ("- a\n\n  ```python\n  x\n  ```\n", 'expected "```language"'),
        ("```python\nx\n", "expected a closing fence"),
        ("text\n\n    x = 1\n", "got an indented one"),
        ('```python title="a.py"\nx\n```\n', "expected a command after the file a.py"),
        ('```console title="a.py"\nx\n```\n', "expected one of python, toml, ini as a file"),
    ],
)
def test_a_block_that_would_not_run_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BlockError, match=re.escape(reason)):
        list(jobs(text, Page("asyncio")))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```python\nprint(1)\n```\n", "but prints"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "but prints"),
        ("```python\nprint(12)\n```\n\n```text\n1\n```\n", "but prints"),
        (
            "```python\nx = 1\n```\n\n```text\nTraceback (most recent call last):\n  ...\nKeyError: 1\n```\n",
            "but prints",
        ),
        ("```console\n$ echo 1\n```\n", "but prints"),
        ("```console\n$ echo 1\n2\n```\n", "but prints"),
        ("```console\n$ false\n```\n", "expected `$ echo $?` after a command that fails"),
        ("```console\nls\n```\n", "expected a command after `$ `"),
        ("```console\n$ python -m nox -s nothing\n```\n", "expected one of the sessions"),
        ("```console\n$ python -m pip install nox && python -m nox\n```\n", "expected at the end of the output"),
    ],
)
def test_a_block_that_does_something_else_fails(text: str, reason: str) -> None:
    page = Page("asyncio")
    try:
        with pytest.raises(BlockError, match=re.escape(reason)):
            run_all(text, page)
    finally:
        page.close()


@pytest.mark.parametrize(
    "text",
    [
        "```python\nx = 1\n```\n\n```python\nprint(x)\n```\n\n```text\n1\n```\n",
        "```python\nprint('a 3 ms b')\n```\n\n```text\na ... b\n```\n",
        "```python\nprint('a')\nprint('b')\nprint('c')\n```\n\n```text\na\n...\n```\n",
        "```python\nraise KeyError(1)\n```\n\n```text\nTraceback (most recent call last):\n  ...\nKeyError: 1\n```\n",
        "```python\nimport anyio\nawait anyio.sleep(0)\nprint(1)\n```\n\n```text\n1\n```\n",
        '```python title="a/b.py"\nprint(3)\n```\n\n```console\n$ cd a\n$ python b.py\n3\n$ false\n$ echo $?\n1\n```\n',
    ],
)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_block_that_does_what_it_says_passes(text: str, backend: str) -> None:
    page = Page(backend)
    try:
        run_all(text, page)
    finally:
        page.close()


LOCAL = """```console
$ python -m pip install '.[app,local]' && bub run "hello"
Hello
```

```console
$ BUB_MODEL=local:mine.gguf bub run "hello"
Hello
$ false
```
"""


def test_a_block_that_needs_the_local_model_runs_in_its_session_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUB_E2E", raising=False)
    run_all(LOCAL, Page("asyncio"))
    monkeypatch.setenv("BUB_E2E", "1")
    asked: list[str] = []
    monkeypatch.setattr(Page, "_shell", lambda _, command, status: (status, asked.append(command) or "Hello"))
    with pytest.raises(BlockError):  # the last command prints something else than the page shows
        run_all(LOCAL, Page("asyncio"))
    assert len(asked) == 3


# -------------------------------------------------------------------------------------------------- docstrings


def as_module(blocks: list[Block]) -> str:
    """The good python blocks of a page as one function, so that they can be type-checked together."""
    good: list[str] = []
    for index, block in enumerate(blocks):
        shown = blocks[index + 1] if index + 1 < len(blocks) else None
        raises = shown is not None and shown.language == "text" and "Traceback (most" in shown.source
        if block.language == "python" and not block.title and not raises:
            good.append(textwrap.indent(block.source, "    "))
    return "async def page() -> None:\n    pass\n" + "\n".join(good)


@pytest.mark.slow
def test_the_examples_of_the_pages_have_no_type_errors(tmp_path: Path) -> None:
    for file in WITH_BLOCKS:
        (tmp_path / f"{file.stem.replace('-', '_')}_page.py").write_text(as_module(read_blocks(read(file))), "utf-8")
    command = (sys.executable, "-m", "mypy", "--strict", "--allow-redefinition", "--cache-dir", str(tmp_path / "cache"))
    environment = {"PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*command, "."], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
