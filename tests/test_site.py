"""The static site: every link leads somewhere, lessons keep their outputs, the search finds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import seq2see
from conftest import small_disk
from seq2see.errors import UserError
from seq2see.page.live import live_page
from seq2see.page.site import Site
from seq2see.storage.folder import SHIPPED, shipped_models

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = seq2see.load("dates")
    made = Site(ROOT)
    made.add_model("dates", "dates", live_page("dates", model, "1845-01-05"), model.card)
    for name in shipped_models():  # every card, with its pictures
        if name != "dates":
            card = (SHIPPED / name / "card.md").read_text(encoding="utf-8")
            made.add_model(name, name, f"<!doctype html><title>{name}</title>", card, SHIPPED / name)
    made.add_documents()
    out = tmp_path_factory.mktemp("site") / "public"
    assert made.write(out) == []  # no link leads nowhere
    return out


def test_documents_lessons_and_code_are_pages(site: Path) -> None:
    for document in [*(ROOT / "docs").glob("*.md"), *(ROOT / "lessons").glob("*.ipynb")]:
        assert (site / document.relative_to(ROOT).with_suffix(".html")).is_file()
    lesson = (site / "lessons" / "04-attention-by-hand.html").read_text(encoding="utf-8")
    cells = json.loads((ROOT / "lessons" / "04-attention-by-hand.ipynb").read_text(encoding="utf-8"))["cells"]
    pictures = sum(
        "image/png" in output.get("data", {}) for cell in cells for output in cell.get("outputs", [])
    )
    assert lesson.count("data:image/png;base64,") == pictures > 0
    paper = (site / "docs" / "paper-to-code.html").read_text(encoding="utf-8")
    assert "../src/seq2see/model/attention.py.html" in paper
    assert "written_attention" in (site / "src/seq2see/model/attention.py.html").read_text(encoding="utf-8")
    assert str(ROOT) not in paper


def test_the_pictures_of_a_card_come_along(site: Path, tmp_path: Path) -> None:
    assert (site / "models" / "en-fr" / "reliability.png").read_bytes() == (
        SHIPPED / "en-fr" / "reliability.png"
    ).read_bytes()
    made = Site(None)
    made.add_model("a", "a", "<!doctype html>", "# A\n\n![in words](gone.png)\n", tmp_path)
    assert made.write(tmp_path / "out") == []
    assert "<em>in words</em>" in (tmp_path / "out" / "models" / "a.html").read_text(encoding="utf-8")


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000a49444154789c63000100000500010d0a2db4"
    "0000000049454e44ae426082"
)
SCRIPT = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


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
    made = Site(None)
    made.add_model("a", "a", "<!doctype html>", card, folder)
    assert made.write(tmp_path / "out") == []
    written = {
        str(path.relative_to(tmp_path / "out" / "models"))
        for path in (tmp_path / "out" / "models").rglob("*.*")
    }
    assert written == {"a.html", "a/good.png", "a/inner/good.png", "a/a b.PNG"}
    assert not any(b"private" in path.read_bytes() for path in (tmp_path / "out").rglob("*.png"))
    page = (tmp_path / "out" / "models" / "a.html").read_text(encoding="utf-8")
    assert page.count("<img") == len(good)
    assert all(f"<em>picture {n}</em>" in page for n in range(len(good), len(good) + len(bad)))


def test_a_project_publishes_no_file_outside_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "private.py").write_text("secret = 1")
    (project / "code.py").symlink_to(tmp_path / "private.py")
    (project / "picture.svg").write_bytes(SCRIPT)
    (project / "README.md").write_text(
        "# A\n\n[b](code.py) ![c](picture.svg) [d](../private.py)\n", encoding="utf-8"
    )
    made = Site(project)
    made.add_documents()
    made.write(tmp_path / "out")
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert b"secret" not in written
    assert b"alert(1)" not in written


def test_a_full_disk_leaves_no_site(tmp_path: Path) -> None:
    site = Site(None)
    site.add_model("dates", "dates", "<p>" + "a" * 20_000, "A card.")
    with small_disk(10_000), pytest.raises(UserError, match=r"could not be written: File too large\."):
        site.write(tmp_path / "site")
    assert list(tmp_path.iterdir()) == []
    assert site.write(tmp_path / "site") == []
    assert (tmp_path / "site/dates.html").stat().st_size > 20_000


def test_a_dead_link_is_told(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "# A\n\n[gone](#nowhere) [there](docs/b.md) [code](src)\n", encoding="utf-8"
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "b.md").write_text("# B\n\n[up](../README.md#a) ![no](none.png)\n", encoding="utf-8")
    made = Site(tmp_path)
    made.add_documents()
    assert made.write(tmp_path / "out") == ["README.html: #nowhere", "docs/b.html: "]
    with pytest.raises(UserError, match="not an empty folder"):
        made.write(tmp_path / "out")


def test_search_and_page_in_the_browser(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.get_by_label("Search this site").fill("label smoothing")
    expect(page.locator("#search li a").first).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url("**/*.html")
    expect(page.locator("main")).to_contain_text("label smoothing", ignore_case=True)
    page.get_by_role("link", name="seq2see", exact=True).click()
    page.locator(".models a").first.click()
    expect(page.locator("#answer")).to_have_text("January 5, 1845")
    page.close()
