"""Hooks of mkdocs.yml: pages from files outside docs, folders in the navigation, descriptions of pages, and llms.txt.

A link in Markdown names a file of the repository, so that it works there too. If the file is not in docs, it becomes a
page of the site: Markdown as it is, a program as a page with its text, a folder as a list of its files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"
CODE_BLOCK = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)[^\n]*$", re.DOTALL | re.MULTILINE)
CODE = re.compile(rf"({CODE_BLOCK.pattern}|`[^`\n]*`)", re.DOTALL | re.MULTILINE)
# The target of a link without its anchor, and the anchor; not a URL, an absolute path or an anchor of the same page.
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|/|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".sh": "bash", ".sql": "sql", "": "text"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace `folder/*` in the navigation by the pages of the folder that it does not name elsewhere."""
    named = set(_paths(config.nav))
    config.nav = list(_expanded(config.nav, named))
    return config


def _paths(nav: Any) -> Iterator[str]:
    """Yield the paths in a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from _paths(item)


def _expanded(nav: Any, named: set[str]) -> Iterator[Any]:
    for item in nav:
        if isinstance(item, str) and item.endswith("/*"):
            pages = sorted((ROOT / DOCS / item).parent.glob("*.md"))
            paths = [page.relative_to(ROOT / DOCS).as_posix() for page in pages]
            yield from (path for path in paths if path not in named)
        elif isinstance(item, dict):
            yield {
                title: list(_expanded(part, named)) if isinstance(part, list) else part for title, part in item.items()
            }
        else:
            yield item


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the Markdown of the repository's root, and each file outside docs that a page links to."""
    queue = [path.name for path in ROOT.glob("*.md")]
    queue += [DOCS + file.src_uri for file in files.documentation_pages()]
    found = set(queue)
    while queue:
        path = queue.pop()
        if not path.startswith(DOCS):
            files.append(_file_of(path, config))
        for target in _targets(path):
            if target not in found and (ROOT / target).exists():
                found.add(target)
                queue.append(target)
    return files


def _targets(path: str) -> Iterator[str]:
    """Yield the paths, from the repository's root, that a file links to; a folder contains its files."""
    file = ROOT / path
    if file.is_dir():
        yield from (f"{path}/{child.name}" for child in sorted(file.iterdir()))
    elif path.endswith(".md"):
        for prose in CODE.split(file.read_text())[::2]:
            yield from (_target(path, link[1]) for link in LINK.finditer(prose))


def _target(path: str, link: str) -> str:
    """Return the path that a link of a file names; a folder's page is its README."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return f"{target}/README.md" if (ROOT / target / "README.md").exists() else target


def _is_page(path: str) -> bool:
    return (ROOT / path).is_dir() or Path(path).suffix in LANGUAGES


def _uri_of(path: str) -> str:
    """Return where MkDocs finds a file of the repository."""
    return path.removeprefix(DOCS) if path.startswith(DOCS) else f"{path}.md" if _is_page(path) else path


def _file_of(path: str, config: MkDocsConfig) -> File:
    """Return a page or a static file of the site for a file outside docs."""
    place, file = InclusionLevel.NOT_IN_NAV, ROOT / path
    if not _is_page(path):
        return File.generated(config, _uri_of(path), abs_src_path=str(file), inclusion=place)
    # The search finds documentation, not programs.
    text = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n"
    if file.is_dir():
        text += "".join(f"* [{target}](/{_uri_of(target)})\n" for target in _targets(path))
    else:
        text += f"~~~~{LANGUAGES[file.suffix]}\n{file.read_text()}\n~~~~\n"
    return File.generated(config, _uri_of(path), content=text, inclusion=place)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave or enter docs to the pages of the site, and describe the page by its first sentence."""
    page.meta.setdefault("description", _first_sentence(markdown))
    parts = CODE.split(markdown)
    path = page.file.src_uri if page.file.generated_by else DOCS + page.file.src_uri
    parts[::2] = [LINK.sub(lambda link: _rewritten(path, link[1]) + (link[2] or ""), prose) for prose in parts[::2]]
    return "".join(parts)


def _rewritten(path: str, link: str) -> str:
    target = _target(path, link)
    is_inside = path.startswith(DOCS) and target.startswith(DOCS) and not (ROOT / path).parent.joinpath(link).is_dir()
    return link if is_inside or not (ROOT / target).exists() else f"/{_uri_of(target)}"


def _first_sentence(markdown: str) -> str:
    """Return the first sentence of a page's text without Markdown's marks."""
    text = re.sub(r"^(#.*|[*|<].*|:::.*| {4}.*|[^\n]*:)$", "", CODE_BLOCK.sub("", markdown), flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        plain = re.sub(r"[`*]", "", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split())))
        if plain:
            return re.split(r"(?<=[.!?])\s", plain)[0]
    return ""


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> Environment:
    """Add llms.txt, a list of the pages, and llms-full.txt, their text."""
    overview = [f"# {config.site_name}\n\n> {config.site_description}\n"]
    texts, section = [], None
    for page in _pages(files):
        if page.ancestors and page.ancestors[-1] is not section:
            section = page.ancestors[-1]
            overview.append(f"\n## {section.title}\n\n")
        overview.append(f"- [{page.title}]({page.url or './'}): {page.meta['description']}\n")
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
