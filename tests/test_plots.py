"""Pictures: each shows the numbers, the tokens and the shape of the model that it was given."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
import typer
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox
from typer.testing import CliRunner

from seq2see.cli import inspect as plot
from seq2see.config import Config, ModelConfig, TrainingConfig, preset
from seq2see.errors import UserError
from seq2see.inspection import architecture, plots, style
from seq2see.learn import pictures
from seq2see.model.positions import position_table
from seq2see.model.transformer import Transformer
from seq2see.page import STATIC
from seq2see.storage.folder import Tokenizers, write
from seq2see.storage.weights import weights_bytes, weights_of
from seq2see.tokenizers.tokenizer import DOCUMENT_VOCABULARY, Tokenizer

CAT = ["YOUR", "CAT", "IS", "A", "LOVELY", "CAT"]
SOURCE = ["<sos>", *"1845-01-05", "<eos>"]
TARGET = ["<sos>", *"déjà vu $5$"]


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).dirichlet(np.full(shape[-1], 0.3), shape[:-1])


def figure_of(drawn: Axes | Figure) -> Figure:
    figure = drawn.get_figure(root=True)
    assert isinstance(figure, Figure)
    all_can_be_read(figure)
    return figure


def all_can_be_read(figure: Figure) -> None:
    """Every text is on the sheet, none lies on another, and none crosses the border of a box."""
    figure.draw_without_rendering()  # a missing glyph or a failed layout is a warning, and so an error
    right, top = figure.get_size_inches() * figure.dpi
    shown = dict[str, Bbox]()
    for ax in figure.axes:
        named = (ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label) if ax.axison else ()  # type: ignore[attr-defined]
        boxes = [box.get_window_extent() for box in ax.patches if type(box) is Rectangle and not ax.axison]
        for text in (*ax.texts, *named):
            if not text.get_text().strip():
                continue
            place, name = text.get_window_extent(), f"{len(shown)}: {text.get_text()}"
            assert place.x0 >= 0 <= place.y0, name
            assert place.x1 <= right, name
            assert place.y1 <= top, name
            assert not [other for other, taken in shown.items() if overlap(place, taken)], name
            assert not [box for box in boxes if 0.5 < overlap(place, box) < place.width * place.height - 0.5], name
            shown[name] = place


def overlap(one: Bbox, other: Bbox) -> float:
    """Return the area that two boxes share, without a pixel at their borders."""
    over = Bbox.intersection(one, other)
    return over.width * over.height if over is not None and min(over.width, over.height) > 1 else 0.0


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def x_labels(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_xticklabels()]


def y_labels(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def with_gid(ax: Axes, gid: str) -> int:
    return sum(artist.get_gid() == gid for artist in (*ax.patches, *ax.texts))


def config_of(name: str, **settings: object) -> ModelConfig:
    return ModelConfig.of(**{**preset(name).model, **settings})


# --- style -------------------------------------------------------------------------------------------------


def test_the_pictures_have_the_colours_of_the_page() -> None:
    css = (STATIC / "style.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--([\w-]+): ([^;]+);", css.partition("@media")[0]))
    assert light["shares"].split() == [*style.SHARES]
    assert light["signed"].split() == [*style.SIGNS]


def test_pyplot_and_its_settings_are_left_alone() -> None:
    before = dict(matplotlib.rcParams)
    figure_of(plots.plot_attention(weights(3, 3), "abc", "abc"))
    assert dict(matplotlib.rcParams) == before
    import matplotlib.pyplot as plt

    assert plt.get_fignums() == []


# --- attention ---------------------------------------------------------------------------------------------


def test_attention_shows_the_weights_and_the_tokens() -> None:
    values = torch.tensor(weights(len(TARGET), len(SOURCE)), requires_grad=True)
    ax = plots.plot_attention(values, TARGET, SOURCE)
    figure_of(ax)
    np.testing.assert_array_equal(ax.images[0].get_array(), values.detach())
    assert x_labels(ax) == SOURCE
    assert y_labels(ax) == ["<sos>", *"déjà␣vu␣", r"\$", "5", r"\$"]
    assert ax.images[0].get_clim() == (0, 1)


def test_scores_have_their_number_in_each_cell_and_masked_ones_are_hatched() -> None:
    scores = np.arange(9.0).reshape(3, 3) - 4.5
    scores[0, 1:] = -np.inf
    ax = plots.plot_scores(scores, CAT[:3], CAT[:3])
    figure_of(ax)
    assert texts(ax) == ["−4.50", "−∞", "−∞", "−1.50", "−0.50", "0.50", "1.50", "2.50", "3.50"]
    assert sum(patch.get_hatch() is not None for patch in ax.patches) == 2
    assert ax.images[0].get_clim() == (-4.5, 4.5)


def test_causal_mask_hides_what_comes_after() -> None:
    ax = plots.plot_causal_mask(CAT)
    figure_of(ax)
    hidden = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in ax.patches if p.get_hatch()}
    assert hidden == {(row, column) for row in range(6) for column in range(row + 1, 6)}
    assert texts(ax).count("−∞") == 15
    assert texts(ax).count("✓") == 21
    assert x_labels(ax) == y_labels(ax) == CAT


def test_grid_has_an_axes_for_each_layer_and_head() -> None:
    values = weights(2, 3, len(TARGET), len(SOURCE))
    figure = figure_of(plots.plot_attention_grid(values, TARGET, SOURCE))
    *heatmaps, bar = figure.axes
    assert len(heatmaps) == 6
    for ax, expected in zip(heatmaps, values.reshape(6, len(TARGET), len(SOURCE)), strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), expected)
    assert [ax.get_title() for ax in heatmaps[:3]] == ["head 0", "head 1", "head 2"]
    assert [ax.get_ylabel() for ax in heatmaps[::3]] == ["layer 0", "layer 1"]
    assert bar.get_ylabel() == "weight"


def test_lines_are_as_opaque_as_the_weights() -> None:
    values = weights(4, len(TARGET), len(SOURCE))
    ax = plots.plot_attention_lines(values, TARGET, SOURCE)
    figure_of(ax)
    seen = sorted(line.get_alpha() for line in ax.lines)
    np.testing.assert_array_equal(seen, np.sort(values[values >= plots.FAINTEST]))
    assert {line.get_color() for line in ax.lines} == set(style.CATEGORIES[:4])
    assert texts(ax) == [*"0123", *style.as_texts(TARGET), *SOURCE]


def test_lines_of_one_query_start_there() -> None:
    values = weights(9, len(SOURCE), len(SOURCE))
    ax = plots.plot_attention_lines(values, SOURCE, SOURCE, query=3)
    figure_of(ax)
    assert len(ax.lines) == (values[:, 3] >= plots.FAINTEST).sum()
    assert len({line.get_ydata()[0] for line in ax.lines}) == 1
    assert [text.get_text() for text in ax.texts if text.get_fontweight() == "bold"] == ["4"]
    assert len({line.get_color() for line in ax.lines}) == 9


# --- positions ---------------------------------------------------------------------------------------------


def test_position_heatmap_shows_the_table() -> None:
    table = position_table(20, 16)
    ax = plots.plot_positions(table)
    figure_of(ax)
    np.testing.assert_array_equal(ax.images[0].get_array(), table)
    assert y_labels(ax.child_axes[0]) == ["−1", "0", "1"]


def test_position_curves_are_columns_of_the_table() -> None:
    table = position_table(20, 16)
    ax = plots.plot_position_curves(table)
    figure_of(ax)
    assert [line.get_label() for line in ax.lines] == [f"dimension {d}" for d in (0, 2, 4, 6)]
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), table[:, 4])
    assert len(plots.plot_position_curves(table, dimensions=(1, 3)).lines) == 2


# --- vectors -----------------------------------------------------------------------------------------------


def test_tokens_stand_above_their_ids_and_padding_is_hatched() -> None:
    tokenizer = Tokenizer.characters()
    ids = [*tokenizer.encode("May 1"), tokenizer.pad]
    ax = pictures.plot_tokens({"target": (tokenizer.tokens(ids), ids)})
    figure_of(ax)
    shown = ["<sos>", *"May␣1", "<eos>", "<pad>"]
    assert texts(ax) == ["target", *(text for pair in zip(shown, map(str, ids), strict=True) for text in pair)]
    assert [patch.get_hatch() is not None for patch in ax.patches] == [False] * 7 + [True]


def test_lookup_shows_the_row_of_the_token_twice() -> None:
    table = np.arange(68 * 16).reshape(68, 16) / 100  # no number twice
    ax = pictures.plot_lookup(table, DOCUMENT_VOCABULARY, "J")
    figure_of(ax)
    shown = texts(ax)
    assert "E[19]" in shown
    for column in (0, 5, 15):
        assert shown.count(style.as_number(table[19, column])) == 2
    assert [row for row in ("18", "19", "20", "21", "67") if row in shown] == ["18", "19", "20", "67"]
    assert "68 tokens × 16" in shown


def test_embedding_sum_shows_three_matrices() -> None:
    scaled = np.random.default_rng(1).normal(size=(12, 16))
    positions = position_table(12, 16).numpy()
    ax = pictures.plot_embedding_sum(scaled, positions, scaled + positions, SOURCE)
    figure_of(ax)
    meshes = [mesh.get_array() for mesh in ax.collections if isinstance(mesh, QuadMesh)]
    for mesh, expected in zip(meshes, (scaled, positions, scaled + positions), strict=True):
        np.testing.assert_array_equal(mesh, expected)
    assert texts(ax)[:12] == SOURCE
    assert [sign for sign in texts(ax) if sign in ("+", "=")] == ["+", "="]


@pytest.mark.parametrize("width", [4, 64])
def test_projection_shows_q_k_and_v_with_numbers_where_they_fit(width: int) -> None:
    x, q, k, v = (np.random.default_rng(i).normal(size=(12, n)) for i, n in enumerate((16, width, width, width)))
    ax = pictures.plot_projection(x, q, k, v, SOURCE)
    figure_of(ax)
    meshes = [mesh.get_array() for mesh in ax.collections if isinstance(mesh, QuadMesh)]
    for mesh, expected in zip(meshes, (x, q, k, v), strict=True):
        np.testing.assert_array_equal(mesh, expected)
    assert [name for name in ("X", "$W^Q$", "$W^K$", "$W^V$") if name in texts(ax)] == ["X", "$W^Q$", "$W^K$", "$W^V$"]
    assert (style.as_number(q[3, 2]) in texts(ax)) is (width == 4)


# --- architecture ------------------------------------------------------------------------------------------


def test_architecture_follows_the_configuration() -> None:
    config = config_of("base", encoder_layers=4, decoder_layers=7, d_ff=1000, activation="gelu")
    ax = architecture.plot_architecture(config)
    figure_of(ax)
    assert [text.get_text() for text in ax.texts if text.get_gid() == "repeat"] == ["4 ×", "7 ×"]
    assert with_gid(ax, "layer") == 2
    assert texts(ax).count("512 → 1000 → 512, gelu") == 2
    assert texts(ax).count("8 heads of 64") == 3
    assert texts(ax).count("Masked Multi-Head Attention") == 1
    assert "512 → 37,000" in texts(ax)


def test_norms_stand_where_the_configuration_puts_them() -> None:
    post = texts(architecture.plot_architecture(config_of("base", norm="post")))
    pre = texts(architecture.plot_architecture(config_of("base", norm="pre")))
    assert post.count("Add & Norm") == 5
    assert post.count("Norm") == 0
    assert pre.count("Add & Norm") == 0
    assert pre.count("Norm") == 7  # one before each of five sub-layers, one at the end of each stack


def test_attention_block_has_the_shapes_of_a_head() -> None:
    ax = architecture.plot_attention_block(config_of("base", d_k=16))
    figure_of(ax)
    assert "÷ √16 = ÷ 4" in texts(ax)
    assert [text for text in texts(ax) if text in ("T × 16", "S × 16", "S × 64")] == ["T × 16", "S × 16", "S × 64"]


@pytest.mark.parametrize(("heads", "cards"), [(1, 1), (4, 4), (16, 8)])
def test_multi_head_shows_the_heads(heads: int, cards: int) -> None:
    ax = architecture.plot_multi_head(config_of("base", heads=heads, d_k=None, d_v=None))
    figure_of(ax)
    assert with_gid(ax, "card") == 4 * cards
    assert f"{heads} × {512 // heads} = 512" in texts(ax)
    assert f"each head projects 512 → {512 // heads}" in texts(ax)


# --- training ----------------------------------------------------------------------------------------------


RECORDS = [
    {"step": step, "loss": 2 / step, "validation_loss": 1 / step, "exact_match": step / 400} for step in (100, 200, 400)
]


def test_training_curve_shows_the_records() -> None:
    losses, matches = figure_of(plots.plot_training(RECORDS)).axes
    np.testing.assert_array_equal(losses.lines[0].get_xydata(), [[100, 0.02], [200, 0.01], [400, 0.005]])
    np.testing.assert_array_equal(losses.lines[1].get_ydata(), [0.01, 0.005, 0.0025])
    np.testing.assert_array_equal(matches.lines[0].get_ydata(), [0.25, 0.5, 1.0])
    # smoothing and R-Drop are in what is trained, so only the held-out loss is in nats
    assert "nats" not in losses.get_ylabel()
    names = [text.get_text() for text in losses.get_legend().get_texts()]
    assert ["nats" in name for name in names] == [False, True]


# --- the command -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with random weights and a log."""
    path = tmp_path_factory.mktemp("plots") / "model"
    torch.manual_seed(1)
    shape = config_of("document", source_vocabulary=68, target_vocabulary=68, norm="pre")
    config = Config(task="pairs", model=shape, training=TrainingConfig())
    write(path, config, Tokenizers.one(Tokenizer.characters()), weights_bytes(weights_of(Transformer(shape))), "")
    (path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return path


def run(*arguments: str | Path) -> str:
    app = typer.Typer()
    app.callback()(lambda: None)
    plot.register(app)
    result = CliRunner().invoke(app, ["plot", *map(str, arguments)], catch_exceptions=True)
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("kind", [*plot.KINDS])
def test_every_kind_makes_a_picture(kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, save = list[Figure](), Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k)))
    run(kind, "--model", folder, "--text", "J", "--length", 8, "--out", tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_text(encoding="utf-8").startswith("<?xml")
    (figure,) = drawn
    all_can_be_read(figure)


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_ending_chooses_the_format_and_pictures_repeat(suffix: str, magic: bytes, tmp_path: Path) -> None:
    out = tmp_path / f"mask.{suffix}"
    out.write_text("older")
    assert str(out) in run("mask", "--text", "a b", "--out", out).replace("\n", "")
    first = out.read_bytes()
    assert first.startswith(magic)
    run("mask", "--text", "a b", "--out", out)
    assert out.read_bytes() == first


@pytest.mark.parametrize("name", ["encoder", "decoder", "cross"])
def test_the_three_attentions_are_the_traced_ones(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seq2see.seq2seq import load

    drawn: list[np.ndarray] = []
    monkeypatch.setattr(plot, "_save", lambda figure, path, form: drawn.append(figure.axes[0].images[0].get_array()))
    run("attention", "--model", folder, "--attention", name, "--layer", 1, "--head", 2)
    traced = load(folder).trace("1845-01-05")
    value = {"encoder": "encoder.layers.1.self", "decoder": "decoder.layers.1.self", "cross": "decoder.layers.1.cross"}
    np.testing.assert_array_equal(drawn[0], traced[f"{value[name]}_attention.weights"][2].double())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["atention"], "Did you mean 'attention'"),
        (["mask", "--out", "x.gif"], r"\.png, \.svg or \.pdf"),
        (["attention", "--layer", "2"], "known are 0, 1"),
        (["attention", "--head", "4"], "heads are 0 to 3"),
        (["attention-lines", "--query", "12"], "tokens are 0 to 11"),
        (["attention", "--text", "日"], "vocabulary does not have"),
        (["positions", "--d-model", "7"], "must be even"),
        (["training", "--log", __file__], "not the log of a training"),
    ],
)
def test_what_cannot_be_drawn_is_explained(
    arguments: list[str], message: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        run(*arguments, "--model", folder)
    assert not list(tmp_path.iterdir())


def test_the_gallery_shows_every_kind_and_its_pictures_are_small() -> None:
    docs = Path(__file__).parent.parent / "docs"
    text = (docs / "pictures.md").read_text(encoding="utf-8")
    commands = [line.split() for line in text.splitlines() if line.startswith("seq2see plot ")]
    assert {command[2] for command in commands} == set(plot.KINDS)
    for command in commands:
        assert command[-2] == "--out"
        assert f"]({command[-1]})" in text
        assert (docs / command[-1]).stat().st_size < 150_000
