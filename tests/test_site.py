"""The sites: that of a user's own models, and the project's own, whose links, contrast, width and weight are checked."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from posixpath import normpath
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

import seq2see
from conftest import small_disk
from seq2see.errors import UserError
from seq2see.page.describe import what_it_does
from seq2see.page.live import live_page
from seq2see.page.site import HOME, Site
from seq2see.storage.folder import SHIPPED, shipped_models

ROOT = Path(__file__).parents[1]
SHIPPED_NAMES = ("dates", "human-dates", "en-fr", "en-de", "fr-en")


class Links(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        address = found.get("src", found.get("href"))
        if address is not None and (tag in {"script", "img", "iframe"} or found.get("rel") == "stylesheet"):
            self.loads.append(address)
        if address is not None:
            self.links.append(address)
        self.links += [found["data-open"]] if "data-open" in found else []


def read_pages(folder: Path) -> dict[str, Links]:
    found = {}
    for path in sorted(folder.rglob("*.html")):
        found[path.relative_to(folder).as_posix()] = page = Links()
        text = path.read_text(encoding="utf-8")
        page.feed(re.sub(r"(<script\b[^>]*>).*?</script", r"\1</script", text, flags=re.DOTALL))
    return found


def target_of(page: str, link: str) -> str:
    """The path in the site that a link of a page means."""
    path = unquote(urlsplit(link).path)
    return normpath(PurePosixPath(page).parent / path) if path else page


def dead(folder: Path) -> list[str]:
    """Links within a site that lead nowhere, as “page: link”."""
    pages, found = read_pages(folder), []
    for page, parts in pages.items():
        for link in parts.links:
            if urlsplit(link).scheme:
                continue
            target, anchor = target_of(page, link), unquote(urlsplit(link).fragment)
            known = (folder / target).is_file()
            live = target.split("/")[-1] in {f"{name}.html" for name in SHIPPED_NAMES}  # its script reads the address
            if not link or not known or (anchor and not live and anchor not in pages[target].anchors):
                found.append(f"{page}: {link}")
    return found


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="x"><a href="b.html#y"></a><a href="#x"></a><a href="#z"></a><img src="">')
    (tmp_path / "b.html").write_text('<a href="c.html"></a><a href="a.html#x"></a><a href="https://arxiv.org">')
    assert dead(tmp_path) == ["a.html: b.html#y", "a.html: #z", "a.html: ", "b.html: c.html"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = seq2see.load("dates")
    made = Site()
    made.add_model("dates", live_page("dates", model, "1845-01-05", home=HOME), model.card)
    for name in shipped_models():  # every card, with its pictures
        if name != "dates":
            card = (SHIPPED / name / "card.md").read_text(encoding="utf-8")
            made.add_model(name, f"<!doctype html><title>{name}</title>", card, SHIPPED / name)
    made.write(out := tmp_path_factory.mktemp("site") / "public")
    assert dead(out) == []
    return out


def test_a_page_says_what_its_model_does_answers_and_links_home(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    expect(page.locator(".models li")).to_have_count(len(shipped_models()))
    expect(page.locator(".models li").first).to_contain_text("1845-01-05 becomes January 5, 1845.")
    page.locator(".models a").first.click()
    expect(page.locator("#answer")).to_have_text("January 5, 1845")
    expect(page.locator("#does")).to_contain_text("ISO dates of the years 1000 to 9999 in English words")
    page.get_by_role("link", name="seq2see", exact=True).click()
    expect(page.locator(".models li").first).to_be_visible()
    page.close()


def test_the_first_sentence_of_a_card_says_what_the_model_does() -> None:
    assert what_it_does((SHIPPED / "human-dates" / "card.md").read_text(encoding="utf-8")).endswith("2024年2月29日.")
    assert what_it_does("# a\n\nA Transformer encoder-decoder made by seq2see: 3 parameters.\n") == ""
    assert what_it_does("# a\n\nTurns *a* into\n`b`. It is small.\n") == "Turns a into b."
    assert what_it_does("# a\n\n| a | b |\n|---|---|\n\nIt is small.") == ""  # a table is not a sentence
    assert what_it_does("# a\n\n \n\nIs it? Yes! It is v. small.") == "Is it?"
    assert what_it_does("") == ""


def test_the_pictures_of_a_card_come_along(site: Path, tmp_path: Path) -> None:
    assert (site / "models" / "en-fr" / "reliability.png").read_bytes() == (
        SHIPPED / "en-fr" / "reliability.png"
    ).read_bytes()
    made = Site()
    made.add_model("a", "<!doctype html>", "# A\n\n![in words](gone.png)\n", tmp_path)
    made.write(tmp_path / "out")
    assert "<em>in words</em>" in (tmp_path / "out" / "models" / "a.html").read_text(encoding="utf-8")
    with pytest.raises(UserError, match="not an empty folder"):
        made.write(tmp_path / "out")


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000a49444154789c63000100000500010d0a2db4"
    "0000000049454e44ae426082"
)
SCRIPT = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


def test_a_card_is_shown_and_runs_nothing() -> None:
    """A card is a stranger's text: its Markdown is drawn, its HTML is shown as text."""
    made = Site()
    card = (
        "# A\n\n<script>alert(1)</script>\n\nb <img src=x onerror=alert(1)> [c](javascript:alert(1))\n\n"
        "| d | e |\n|---|---|\n| ~~f~~ | [g](https://example.com) |\n"
    )
    made.add_model("a", "<!doctype html>", card)
    page = made.files["models/a.html"].decode()
    assert all(tag not in page for tag in ("<script", "<img", 'href="javascript'))
    assert all(shown in page for shown in ("&lt;script&gt;", "<th>d</th>", "<s>f</s>", 'href="https://example.com"'))


def test_only_pictures_of_the_folder_itself_are_published(tmp_path: Path) -> None:
    """A card is a stranger's text: it brings along no other file of this machine, and nothing that runs."""
    folder, outside = tmp_path / "model", tmp_path / "outside"
    for path in (folder / "inner", outside):
        path.mkdir(parents=True)
    (outside / "private.png").write_bytes(PIXEL + b"private")
    for name in ("good.png", "inner/good.png", "a b.PNG"):
        (folder / name).write_bytes(PIXEL)
    (folder / "script.svg").write_bytes(SCRIPT)
    (folder / "script.png").write_bytes(SCRIPT)
    (folder / "link.png").symlink_to(outside / "private.png")
    (folder / "near.png").symlink_to(folder / "good.png")
    (folder / "way").symlink_to(outside, target_is_directory=True)
    os.mkfifo(folder / "pipe.png")
    (folder / "folder.png").mkdir()
    (folder / "config.toml").write_text("secret")
    bad = [
        "../outside/private.png", "/outside/private.png", str(outside / "private.png"), "link.png", "near.png",
        "way/private.png", "script.svg", "script.png", "pipe.png", "folder.png", "config.toml",
        "x/../../outside/private.png",
        "%2e%2e/outside/private.png", "..%2foutside%2fprivate.png", "&#46;&#46;/outside/private.png",
        "..\\\\outside\\\\private.png",
        "good.png%00.svg", "https://example.com/x.png",
    ]  # fmt: skip
    good = ["good.png", "inner/good.png", "a%20b.PNG", "inner/../good.png"]
    card = "# A\n\n" + "\n".join(f"![picture {n}](<{one}>)" for n, one in enumerate([*good, *bad]))
    made = Site()
    made.add_model("a", "<!doctype html>", card, folder)
    made.write(tmp_path / "out")
    assert dead(tmp_path / "out") == []
    written = {
        str(path.relative_to(tmp_path / "out" / "models")) for path in (tmp_path / "out" / "models").rglob("*.*")
    }
    assert written == {"a.html", "a/good.png", "a/inner/good.png", "a/a b.PNG"}
    assert not any(b"private" in path.read_bytes() for path in (tmp_path / "out").rglob("*.png"))
    page = (tmp_path / "out" / "models" / "a.html").read_text(encoding="utf-8")
    assert page.count("<img") == len(good)
    assert all(f"<em>picture {n}</em>" in page for n in range(len(good), len(good) + len(bad)))


def test_a_full_disk_leaves_no_site(tmp_path: Path) -> None:
    site = Site()
    site.add_model("dates", "<p>" + "a" * 20_000, "A card.")
    with small_disk(10_000), pytest.raises(UserError, match=r"could not be written: File too large\."):
        site.write(tmp_path / "site")
    assert list(tmp_path.iterdir()) == []
    site.write(tmp_path / "site")
    assert (tmp_path / "site/dates.html").stat().st_size > 20_000


@pytest.fixture(scope="module")
def project_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's own site, as `make site` builds it."""
    out = tmp_path_factory.mktemp("project") / "site"
    made = subprocess.run(["make", "site", f"SITE={out}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return out


#: A page of each kind, and what must be on it.
KINDS = {
    "index.html": "Understand",
    "README.html": "seq2see",
    "docs/paper-to-code.html": "From the paper to the code",
    "lessons/03-attention-by-hand.html": "Attention by hand",
    "src/seq2see/models/dates/card.html": "dates",
    "src/seq2see/model/attention.py.html": "src/seq2see/model/attention.py",
}
LARGEST = 1_500_000  # bytes that a page may load before anybody clicks


@pytest.mark.heavy
def test_every_link_of_the_projects_site_leads_somewhere_and_pages_are_light(project_site: Path) -> None:
    assert dead(project_site) == []
    pages = read_pages(project_site)
    for source in [*(ROOT / "docs").glob("*.md"), *(ROOT / "lessons").glob("*.ipynb")]:
        assert source.relative_to(ROOT).with_suffix(".html").as_posix() in pages
    for name, page in pages.items():
        if name.startswith("models/"):
            continue
        assert not [link for link in page.loads if urlsplit(link).scheme not in {"", "data"}], name
        files = {target_of(name, link) for link in page.loads if not urlsplit(link).scheme} | {name}
        largest = 2 * LARGEST if name == "src/seq2see/models/human-dates/card.html" else LARGEST  # its live page
        assert sum((project_site / file).stat().st_size for file in files) < largest, name
    assert str(ROOT) not in (project_site / "docs" / "paper-to-code.html").read_text(encoding="utf-8")


@pytest.fixture
def own_host(browser: Browser) -> Iterator[Page]:
    """A page that may load nothing from the network."""
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    yield page
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
    page.close()


@pytest.mark.heavy
def test_the_projects_site_is_legible_everywhere(own_host: Page, project_site: Path) -> None:
    """Contrast and structure by axe, in light and dark; no page is wider than a telephone."""
    for name, words in KINDS.items():
        for scheme in ("light", "dark"):
            own_host.emulate_media(color_scheme=scheme)
            own_host.set_viewport_size({"width": 390, "height": 844})
            own_host.goto((project_site / name).as_uri())
            expect(own_host.locator("h1").first).to_be_visible()
            expect(own_host.locator("article")).to_contain_text(words)
            assert own_host.evaluate("document.documentElement.scrollWidth") <= 390, name
            found = Axe().run(own_host, options={"iframes": False})
            assert found.violations_count == 0, (name, scheme, found.generate_report())


@pytest.mark.heavy
def test_the_landing_page_answers_and_the_search_finds_from_a_disk(own_host: Page, project_site: Path) -> None:
    own_host.goto((project_site / "index.html").as_uri())
    frame = own_host.frame_locator(".live iframe")
    expect(frame.locator("#answer")).to_have_text("January 5, 1845")
    for door in ("Understand", "Use", "Train"):
        expect(own_host.get_by_role("link", name=door, exact=True)).to_be_visible()
    own_host.goto(f"{(project_site / 'search.html').as_uri()}?q=label+smoothing")
    expect(own_host.locator("#search-results li a").first).to_be_visible()
    own_host.goto((project_site / "src/seq2see/models/en-fr/card.html").as_uri())
    own_host.get_by_role("button", name="Start en-fr here").click()
    frame = own_host.frame_locator(".live iframe")
    expect(frame.locator("#answer")).to_have_text("Où se trouve la gare ?")
    own_host.goto((project_site / "models/dates.html").as_uri())
    own_host.get_by_role("link", name="seq2see", exact=True).click()
    expect(own_host.get_by_role("heading", name="See a Transformer write")).to_be_visible()
