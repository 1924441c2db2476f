"""A statement as PDF, from the same page as its HTML.

Invariant: the same statement is the same bytes; nothing is fetched while it is made. A long statement has
its sums in full and points to CSV for its lines, since a page for each forty lines serves nobody.
"""

from __future__ import annotations

from typing import Any, NoReturn

from accounting.errors import InvalidError
from accounting.periods.statement import Statement
from accounting.reports.statement_html import statement_html

MAX_LINES = 1_000
"""What still makes a document of some thirty pages, in about as many seconds."""


def statement_pdf(statement: Statement) -> bytes:
    """The statement as a document with page numbers.

    Raises:
        InvalidError: WeasyPrint or the library under it is not installed.
    """
    html = statement_html(statement, max_lines=MAX_LINES)
    made: Any = _weasyprint().HTML(string=html, url_fetcher=_refuse, media_type="print")
    document: bytes = made.write_pdf(full_fonts=False)
    return document


def _refuse(url: str, *_rest: object, **_options: object) -> NoReturn:
    raise ValueError(f"a statement names no address, so not {url}")


def _weasyprint() -> Any:
    try:
        import weasyprint  # noqa: PLC0415 - 1.4 s and 30 MB that only a PDF needs
    except ImportError:
        raise InvalidError(
            "PDF needs WeasyPrint, which is not installed; add it with: pip install 'slicemeter[pdf]'"
        ) from None
    except OSError as error:  # what it finds missing when it is imported
        raise InvalidError(
            f"PDF needs Pango, which WeasyPrint does not find ({str(error).splitlines()[0]}); install it, on "
            "Debian: apt install libpango-1.0-0 libpangoft2-1.0-0"
        ) from None
    return weasyprint
