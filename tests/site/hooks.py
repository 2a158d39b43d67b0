"""Hooks of mkdocs.yml: pages from files outside docs, folders in the navigation, descriptions of pages, and llms.txt.

A link in Markdown names a file of the repository, so that it works there too. If the file is not in docs, it becomes a
page of the site: Markdown as it is, a program as a page with its text, a folder as a list of its files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

DOCS = "docs/"
# The README would replace docs/index.md as the first page; it is a page so that its links are checked.
README, README_PAGE = "README.md", "repository.md"
CODE_BLOCK = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)[^\n]*$", re.DOTALL | re.MULTILINE)
CODE = re.compile(rf"({CODE_BLOCK.pattern}|`[^`\n]*`)", re.DOTALL | re.MULTILINE)
# The target of a link, and its anchor; not a URL, an absolute path or an anchor of the same page.
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|/|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".sh": "bash",
    ".sql": "sql",
    "": "text",
}
SEARCH = 'data-md-component="search" role="dialog"'
# Not what readers start from; the search finds documentation.
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"


@dataclass(frozen=True)
class Repository:
    """The files of the repository by their paths from its root, and the pages that they become."""

    root: Path

    def is_folder(self, path: str) -> bool:
        """Return whether a path is a folder."""
        return (self.root / path).is_dir()

    def uri_of(self, path: str) -> str:
        """Return what MkDocs calls a file."""
        if path == README:
            return README_PAGE
        if path.startswith(DOCS):
            return path.removeprefix(DOCS)
        return f"{path}.md" if self.is_folder(path) or Path(path).suffix in LANGUAGES else path

    def path_of(self, file: File) -> str:
        """Return the path of a Markdown file of MkDocs."""
        if file.src_uri == README_PAGE:
            return README
        return file.src_uri if file.generated_by else DOCS + file.src_uri

    def target(self, path: str, link: str) -> str:
        """Return the path that a link of a file names; a folder's page is its README."""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
        return f"{target}/{README}" if (self.root / target / README).exists() else target

    def targets(self, path: str) -> Iterator[str]:
        """Yield the paths that a file links to; a folder contains its files."""
        if self.is_folder(path):
            names = sorted(child.name for child in (self.root / path).iterdir())
            yield from (f"{path}/{name}" for name in names if not name.startswith((".", "__")))
        elif path.endswith(".md"):
            for prose in CODE.split((self.root / path).read_text())[::2]:
                yield from (self.target(path, link[1]) for link in LINK.finditer(prose))

    def file_of(self, path: str, config: MkDocsConfig) -> File:
        """Return a page or a static file of the site for a file outside docs."""
        uri, place, file = self.uri_of(path), InclusionLevel.NOT_IN_NAV, self.root / path
        if uri == path:
            return File.generated(config, uri, abs_src_path=str(file), inclusion=place)
        if path == README:
            text = file.read_text()
        elif self.is_folder(path):
            text = f"# {path}\n\n" + "".join(f"* [{t}](/{self.uri_of(t)})\n" for t in self.targets(path))
        else:
            text = f"# {path}\n\n~~~~{LANGUAGES[file.suffix]}\n{file.read_text()}\n~~~~\n"
        return File.generated(config, uri, content=UNSEARCHED + text, inclusion=place)

    def rewritten(self, path: str, link: str) -> str:
        """Return a link of a file so that MkDocs finds its target; one that names no file as it is."""
        target = self.target(path, link)
        names_page = path.startswith(DOCS) and target.startswith(DOCS) and target.endswith(posixpath.basename(link))
        return link if names_page or not (self.root / target).exists() else f"/{self.uri_of(target)}"


def _repository(config: MkDocsConfig) -> Repository:
    return Repository(Path(config.docs_dir).parent)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace `folder/*` in the navigation by the pages of the folder that it does not name elsewhere."""
    named = set(_paths(config.nav))
    config.nav = list(_expanded(config.nav, named, Path(config.docs_dir)))
    return config


def _paths(nav: Any) -> Iterator[str]:
    """Yield the paths in a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from _paths(item)


def _expanded(nav: Any, named: set[str], docs: Path) -> Iterator[Any]:
    for item in nav:
        if isinstance(item, str) and item.endswith("/*"):
            paths = sorted(page.relative_to(docs).as_posix() for page in docs.glob(f"{item}.md"))
            yield from (path for path in paths if path not in named)
        elif isinstance(item, dict):
            ((title, part),) = item.items()
            yield {title: part if isinstance(part, str) else list(_expanded(part, named, docs))}
        else:
            yield item


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the Markdown of the repository's root, and each file outside docs that a page links to."""
    repository = _repository(config)
    queue = [path.name for path in repository.root.glob("*.md")]
    queue += [DOCS + file.src_uri for file in files.documentation_pages()]
    found = set(queue)
    while queue:
        path = queue.pop()
        if not path.startswith(DOCS):
            files.append(repository.file_of(path, config))
        new = {t for t in repository.targets(path) if (repository.root / t).exists()} - found
        found |= new
        queue += new
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave or enter docs to the pages of the site, and describe the page by its first sentence."""
    page.meta.setdefault("description", _first_sentence(markdown))
    repository = _repository(config)
    path = repository.path_of(page.file)
    parts = CODE.split(markdown)
    for index in range(0, len(parts), 2):
        # A comment at the start of a line would end its paragraph; the comments around figures can be there.
        prose = COMMENT.sub("", parts[index])
        parts[index] = LINK.sub(lambda link: repository.rewritten(path, link[1]) + (link[2] or ""), prose)
    return "".join(parts)


def _first_sentence(markdown: str) -> str:
    """Return the first sentence of a page's text without Markdown's marks."""
    prose = COMMENT.sub("", CODE_BLOCK.sub("", markdown))
    for paragraph in re.split(r"\n\s*\n", prose):
        if not re.match(r"\s*($|#|[*-] |\d+\.|\||<|!\[|:::| {4}|Generated by)", paragraph):
            text = re.sub(r"^\*\*[^*]+\.\*\* ", "", " ".join(paragraph.split()))
            text = re.sub(r"[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
            return re.sub(r":$", ".", re.split(r"(?<=[.!?])\s", text)[0])
    return ""


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the theme's search dialog, and make its nested lists of pages groups instead of landmarks."""
    open_tags: list[str] = []

    def replaced(tag: re.Match[str]) -> str:
        if tag[0] == "</nav>":
            return f"</{open_tags.pop()}>"
        is_nested = 'class="md-nav" data-md-level' in tag[0]
        open_tags.append("div" if is_nested else "nav")
        return tag[0].replace("<nav", '<div role="group"') if is_nested else tag[0]

    output = re.sub(r"<nav\b[^>]*>|</nav>", replaced, output)
    return output.replace(SEARCH, f'{SEARCH} aria-label="Search"')


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> Environment:
    """Add llms.txt, a list of the pages, and llms-full.txt, their text."""
    overview = [f"# {config.site_name}\n\n> {config.site_description}\n\n"]
    texts: list[str] = []
    section: list[Any] = []
    for page in _pages(files):
        top = [*page.ancestors][-1:]
        if top and top != section:
            section = top
            overview.append(f"\n## {top[0].title}\n\n")
        overview.append(f"- [{page.title}]({page.url or './'}): {page.meta['description']}\n")
        # A page of the API reference has only names, which mkdocstrings replaces in HTML.
        if "\n::: " not in (page.markdown or ""):
            texts.append(f"<!-- {page.url or './'} -->\n\n{page.markdown}\n")
    files.append(File.generated(config, "llms.txt", content="".join(overview)))
    files.append(File.generated(config, "llms-full.txt", content="\n".join(texts)))
    return env


def _pages(files: Files) -> Iterator[Page]:
    """Yield the pages in the order of the navigation."""
    file = files.get_file_from_path("index.md")
    page = file.page if file else None
    while page:
        yield page
        page = page.next_page
