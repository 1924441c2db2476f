"""The page to open first: it links the tenants' statements, and says how to ask the API oneself.

Pure: values in, one self-contained HTML page out. Invariant: it names the files of tokens, never a token.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from lab.live.view import Address

FILE_NAME = "index.html"
REFRESH_S = 10


@dataclass(frozen=True, slots=True)
class Question:
    """A request that a person may send as it stands.

    Attributes:
        who: As whom it is asked.
        token_file: Whose token goes with it.
    """

    who: str
    token_file: Path
    url: str

    @property
    def command(self) -> str:
        """A shell command on one line."""
        return " ".join(self._parts)

    @property
    def text(self) -> str:
        """The same on two lines, for where one is too long."""
        return " \\\n  ".join(self._parts)

    @property
    def _parts(self) -> tuple[str, str]:
        token = f"$(cat {shlex.quote(str(self.token_file))})"
        return f'curl -H "Authorization: Bearer {token}"', shlex.quote(self.url)


@dataclass(frozen=True, slots=True)
class StatementLink:
    """One tenant's statement.

    Attributes:
        about: What the tenant's cluster is.
        total: Amount and currency as the statement shows them; None: there is no statement yet.
        file: Its name beside this page.
    """

    tenant: str
    account: str
    about: str
    total: str | None
    file: str


_STYLE = """\
:root { --ink: #1b1f24; --soft: #5c6670; --rule: #d5dbe1;
  --panel: #f5f7f9; --paper: #fff; --accent: #0b6e4f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --soft: #9aa5b0; --rule: #343c44;
    --panel: #1e242a; --paper: #14181c; --accent: #5fd0a5; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.5rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; }
header { border-bottom: 2px solid var(--accent); padding-bottom: 1rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { color: var(--soft); margin: .25rem 0 0; }
a { color: var(--accent); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 1rem;
  margin-top: 1.5rem; }
.card { display: flex; flex-direction: column; background: var(--panel);
  border: 1px solid var(--rule); border-radius: .5rem; padding: 1rem 1.2rem;
  color: inherit; text-decoration: none; }
a.card:hover, a.card:focus-visible { border-color: var(--accent); }
.card strong { font-size: 1.5rem; font-variant-numeric: tabular-nums;
  margin: auto 0 .4rem; padding-top: .4rem; }
.card b { color: var(--accent); }
.card small { color: var(--soft); }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .5rem 1.2rem; margin: .5rem 0 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .82rem; }
"""


def front_page(
    links: Sequence[StatementLink], questions: Iterable[Question], addresses: Iterable[Address]
) -> str:
    """The page as it is now; a browser loads it again by itself."""
    asked = "\n".join(_term(one.who, f"<pre>{escape(one.text)}</pre>") for one in questions)
    pages = "\n".join(
        _term(one.name, f'<a href="{escape(one.place)}">{escape(one.place)}</a>') for one in addresses
    )
    cards = "\n".join(_card(link) for link in links)
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="refresh" content="{REFRESH_S}">
<title>Slicemeter demo</title>
<style>
{_STYLE}</style>
</head>
<body>
<main>
<header>
<h1>Slicemeter demo</h1>
<p>What every tenant owes so far. The page follows while the demo runs, and goes when it ends.</p>
</header>
<div class="cards">
{cards}
</div>
<h2>Ask the API</h2>
<p>The operator's token reads everything, a tenant's its own part and not a word of another's.</p>
<dl>
{asked}
</dl>
<h2>Pages</h2>
<dl>
{pages}
</dl>
</main>
</body>
</html>
"""


def _card(link: StatementLink) -> str:
    about = f"<b>{escape(link.tenant)}</b><small>{escape(link.account)} · {escape(link.about)}</small>"
    if link.total is None:
        return f'<div class="card">{about}<strong>–</strong><small>no statement yet</small></div>'
    name = escape(link.file)
    total = escape(link.total)
    return (
        f'<a class="card" href="{name}">{about}<strong>{total}</strong><small>open the statement</small></a>'
    )


def _term(name: str, html: str) -> str:
    return f"<dt>{escape(name)}</dt><dd>{html}</dd>"
