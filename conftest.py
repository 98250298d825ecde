"""Runs every code block of the docs and the README; see `tools/code_blocks.py`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sybil import Document, Example, Region, Sybil

from tools.code_blocks import BlockError, Job, Page, jobs

PAGE: Final = "bub page"


class BlockParser:
    """Gives every block of a page to pytest.

    Args:
        backend: What a bare `await` runs on.
        commands: Whether console blocks and files are run too; once is enough for them.
    """

    def __init__(self, backend: str, *, commands: bool) -> None:
        self._backend = backend
        self._commands = commands

    def __call__(self, document: Document) -> Iterable[Region]:
        """The blocks of a page, in order."""
        page = Page(self._backend)
        document.namespace[PAGE] = page
        for job in jobs(document.text, page):
            if self._commands or (job.block.language == "python" and not job.block.title):
                yield Region(job.block.start, job.block.end, evaluator=Evaluator(job))


class Evaluator:
    """Runs one block.

    Args:
        job: The block and how it is run.
    """

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, example: Example) -> str | None:
        """What is wrong; None when nothing is."""
        try:
            self._job.run()
        except BlockError as error:
            return str(error)
        return None


def _leave(namespace: dict[str, object]) -> None:
    page = namespace.get(PAGE)
    if isinstance(page, Page):
        page.close()


def _pages(backend: str, *, commands: bool) -> Sybil:
    return Sybil(
        parsers=[BlockParser(backend, commands=commands)],
        patterns=["docs/*.md", "README.md"],
        path=str(Path(__file__).parent),
        teardown=_leave,
        name=backend,
    )


pytest_collect_file = (_pages("asyncio", commands=True) + _pages("trio", commands=False)).pytest()
