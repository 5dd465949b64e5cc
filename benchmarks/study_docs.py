"""Renews the generated part of docs/studies.md: the fields of a study, from the dataclasses."""

from pathlib import Path

from benchback.cli.studies import fields_text

PAGE = Path(__file__).parents[1] / "docs" / "studies.md"
BEGIN, END = "<!-- fields: begin -->\n", "<!-- fields: end -->\n"


def renewed(page: str) -> str:
    """The page with its generated part as the code has it now."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{fields_text()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
