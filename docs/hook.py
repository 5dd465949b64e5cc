"""What MkDocs calls while it builds the site: pages made from the sources, the navigation, links that stay inside."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from site_pages import ROOT, links, navigation
from site_pages.generated import generated_pages
from site_pages.walkthroughs import figures


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of docs/ with the generated pages and figures; sets the navigation of what is there."""
    pages = generated_pages()
    for name, content in {**pages, **figures()}.items():
        files.append(File.generated(config, name, content=content))
    # The report is an index.html too, and would take the place of the page about it.
    files.append(File.generated(config, links.REPORT, abs_src_path=str(ROOT / "docs/results/index.html")))
    written = sorted(file.src_uri for file in files.documentation_pages() if file.src_uri not in pages)
    config.nav = navigation.nav([*written, *pages])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with links into the repository turned into links of the site, or into plain names."""
    known = {file.src_uri for file in files}
    return links.rewritten(markdown, page.file.src_uri, known)
