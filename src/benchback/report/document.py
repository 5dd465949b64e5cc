"""The shell, tables and drawings of a page that stands for itself: nothing in it comes from elsewhere."""

from collections.abc import Sequence
from html import escape

from benchback.report.page import ASSETS

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(heading: str, body: str, title: str = "") -> str:
    """The whole file; its title is the heading unless it has another."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<link rel="icon" href="data:,"><title>{escape(title or heading)}</title>'
        f"<style>{(ASSETS / 'page.css').read_text()}</style></head>"
        f"<body><header><h1>{escape(heading)}</h1></header><main>{body}</main></body></html>\n"
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose rows are named by their first cell."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = ""
    for first, *rest in rows:
        cells = "".join(f'<td class="number">{escape(text)}</td>' for text in rest)
        body += f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>'
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def figure(svg: bytes, label: str, caption: str, heading: str = "") -> str:
    """A drawing with what to look for."""
    head = f"<h2>{escape(heading)}</h2>" if heading else ""
    return (
        f'<figure>{head}<div class="chart" role="img" aria-label="{escape(label)}">'
        f"{svg.decode()}</div><figcaption>{escape(caption)}</figcaption></figure>"
    )
