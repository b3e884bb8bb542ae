"""Labelled tables, their files, and one weight worked out; and the command that prints them."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import seq2see
from seq2see.cli import inspect
from seq2see.errors import InputError, UserError
from seq2see.inspection.tables import ATTENTIONS, explain, print_table, tables_of, write_csv, write_json, write_npz
from seq2see.inspection.trace import Trace

WEIGHTS = "encoder.layers.0.self_attention.weights"
MASKED = "decoder.layers.0.self_attention.masked"


@cache
def traced() -> Trace:
    return seq2see.load("dates").trace("1845-01-05")


def printed(*arguments: str) -> str:
    app = typer.Typer(pretty_exceptions_enable=False)
    inspect.register(app)
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_attention_is_one_table_a_head_headed_by_tokens() -> None:
    tables = tables_of(traced(), "decoder.layers.1.cross_attention.weights")
    assert [table.head for table in tables] == [0, 1, 2, 3]
    for table in tables:
        assert table.rows == ["<sos>", *"January 5, 1845"]
        assert table.columns == ["<sos>", *"1845-01-05", "<eos>"]
        np.testing.assert_allclose(table.values.sum(1), 1, atol=1e-6)
        expected = traced()["decoder.layers.1.cross_attention.weights"][table.head]
        np.testing.assert_array_equal(table.values, expected)


@pytest.mark.parametrize("name", [WEIGHTS, MASKED, "encoder.embedding.sum", "logits", "encoder.embedding.ids"])
def test_a_printed_table_shows_every_number_within_the_width(name: str) -> None:
    out = io.StringIO()
    for table in tables_of(traced(), name):
        print_table(Console(file=out, width=100), table)
    text = out.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 100
    shown = re.findall(r"-inf|-?\d+\.\d{2,}", text)
    if name != "encoder.embedding.ids":
        digits = {len(one.rpartition(".")[2]) for one in shown if "." in one}
        assert digits == {4}  # no fewer, where that spares no block
        expected = [f"{x:.{min(digits)}f}" for x in traced()[name].flatten().tolist()]
        assert sorted(shown) == sorted(expected)


def test_csv_has_one_line_a_number() -> None:
    out = io.StringIO()
    write_csv(traced(), [WEIGHTS, "encoder.embedding.sum", MASKED], out)
    lines = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert len(lines) == 4 * 12 * 12 + 12 * 16 + 4 * 16 * 16
    line = lines[12 * 12 + 3 * 12 + 7]
    labels = {"name": WEIGHTS, "head": "1", "row": "3", "row_token": "4", "column": "7", "column_token": "1"}
    assert {**labels, "value": line["value"]} == line
    assert float(line["value"]) == traced()[WEIGHTS][1, 3, 7].item()
    assert float(lines[-2]["value"]) == traced()[MASKED][3, 15, 14].item()
    assert float(lines[4 * 12 * 12 + 12 * 16 + 1]["value"]) == -np.inf


def test_json_is_strict_and_whole() -> None:
    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    out = io.StringIO()
    write_json(traced(), [MASKED, WEIGHTS], out)
    assert out.getvalue().endswith("}\n")
    document = json.loads(out.getvalue(), parse_constant=refuse)
    assert (document["text"], document["output"]) == ("1845-01-05", "January 5, 1845")
    value = document["values"][MASKED]
    assert value["axes"] == [[f"head {n}" for n in range(4)], *[["<sos>", *"January 5, 1845"]] * 2]
    assert value["letters"] == "(…, H, T, T)"
    assert '"(…, H, T, T)"' in out.getvalue()  # as people read it
    assert value["shape"] == [4, 16, 16]
    assert value["values"][0][0][1] == "-Infinity"
    np.testing.assert_array_equal(np.array(value["values"], dtype=float), traced()[MASKED])


def test_npz_needs_no_pickle() -> None:
    out = io.BytesIO()
    write_npz(traced(), traced().names, out)
    out.seek(0)
    with np.load(out, allow_pickle=False) as arrays:
        assert arrays["source_tokens"].tolist() == traced().source_tokens
        for name in traced().names:
            np.testing.assert_array_equal(arrays[name], traced()[name])


# --- one cell --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_explanation_ends_in_its_cell(attention: str) -> None:
    for layer, head in itertools.product(range(2), range(4)):
        weights = traced()[f"{ATTENTIONS[attention].format(layer)}.weights"]
        for row, col in itertools.product(range(0, weights.shape[1], 3), range(0, weights.shape[2], 2)):
            explanation = explain(traced(), attention, layer, head, row, col)
            cell = weights[head, row, col].item()
            assert explanation.value == cell
            assert explanation.lines[-1].endswith(f" = {cell:.6f}")
            assert "edit" not in str(explanation)


def test_the_arithmetic_that_is_shown_is_right() -> None:
    text = str(explain(traced(), "encoder", 0, 2, 3, 7))
    products = [line for line in text.splitlines() if "·" in line and "+" in line]
    terms = re.findall(r"\(?(-?\d+\.\d+)\)?·\(?(-?\d+\.\d+)\)?", " ".join(products))
    assert len(terms) == 4
    assert re.fullmatch(r" {5}[()\d.·-]+(?: \+ [()\d.·-]+){3}", products[0])
    dot = float(re.search(r"q·k = (-?[\d.]+)", text)[1])  # type: ignore[index]
    assert sum(float(q) * float(k) for q, k in terms) == pytest.approx(dot, abs=2e-3)
    assert f"{dot:.6f} / 2 = {dot / 2:.5f}" in text
    powers = [float(x) for x in re.findall(r"e\^.*= (\d\.\d+)", text)]
    assert len(powers) == 12
    total = float(re.search(r"sum +=? +(\d+\.\d+)", text)[1])  # type: ignore[index]
    assert sum(powers) == pytest.approx(total, abs=1e-5)
    marked = next(line for line in text.splitlines() if line.startswith(" →"))
    assert "7 1" in marked
    shown = float(marked.rpartition("=")[2]) / total
    assert shown == pytest.approx(float(text.rpartition("= ")[2]), abs=1e-6)


def test_a_hidden_cell_is_zero_and_says_why() -> None:
    explanation = explain(traced(), "decoder", 1, 0, 3, 7)
    assert explanation.value == 0
    assert "this query may not look there" in str(explanation)
    assert "masked = -inf" in str(explanation)


def test_an_edited_cell_says_so() -> None:
    model = seq2see.load("dates")
    edited = model.trace("1845-01-05", edit={WEIGHTS: lambda x: x.fill_(0.25)})
    explanation = explain(edited, "encoder", 0, 2, 3, 7)
    assert explanation.value == 0.25
    assert explanation.lines[-1] == "   but an edit has put another number in its place: 0.250000"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sideways", 0, 0, 0, 0), "no attention 'sideways'. Known: cross, decoder, encoder."),
        (("encoder", 2, 0, 0, 0), "no layer 2 of encoder attention: known are 0, 1."),
        (("encoder", -1, 0, 0, 0), "no layer -1"),
        (("cross", 0, 4, 0, 0), "no head 4 in decoder.layers.0.cross_attention: known are 0, 1, 2, 3."),
        (("cross", 0, 0, 16, 0), "no row 16 .* known are 0 <sos>, 1 J, .* 15 5."),
        (("cross", 0, 0, 0, 12), "no column 12 .* known are 0 <sos>, 1 1, .* 11 <eos>."),
    ],
)
def test_cells_out_of_range_list_the_valid_ones(arguments: tuple[str, int, int, int, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        explain(traced(), *arguments)


# --- the command -----------------------------------------------------------------------------------------


def test_trace_lists_every_name_and_the_answer() -> None:
    text = printed("trace", "1845-01-05")
    assert "1845-01-05  →  January 5, 1845" in text
    assert "96 values" in text
    for name in traced().names:
        place, _, role = name.rpartition(".")
        assert f"  {role} " in text
        assert re.sub(r"\.\d+\.", ".*.", place) in text
    assert "E[x]" in text  # not taken for markup
    assert max(len(line) for line in text.splitlines()) <= 100


def test_trace_prints_tables_whose_rows_sum_to_one() -> None:
    text = printed("trace", "1845-01-05", "--name", WEIGHTS)
    for head in range(4):
        assert f"{WEIGHTS}, head {head}" in text
    rows = [re.findall(r"\d\.\d{4}", line) for line in text.splitlines()]
    rows = [row for row in rows if row]
    assert len(rows) == 4 * 12
    assert all(len(row) == 12 and sum(map(float, row)) == pytest.approx(1, abs=6e-4) for row in rows)


def test_trace_explains_a_cell() -> None:
    cell = traced()["decoder.layers.1.cross_attention.weights"][3, 2, 7].item()
    text = printed("trace", "1845-01-05", "--explain", "1.3.2.7", "--attention", "cross")
    assert text.rstrip().endswith(f"= {cell:.6f}")


def test_trace_writes_files(tmp_path: Path) -> None:
    for format in ("csv", "json", "npz", "table"):
        out = tmp_path / f"trace.{format}"
        assert printed("trace", "1845-01-05", "--name", "*.weights", "--format", format, "--out", str(out)) == ""
        assert out.stat().st_size > 1000
    assert json.loads(printed("trace", "1845-01-05", "--format", "json"))["values"].keys() == set(traced().names)
    assert printed("trace", "1845-01-05", "--name", WEIGHTS, "--format", "csv").startswith("name,head,row,")
    with pytest.raises(UserError, match="could not be written"):
        printed("trace", "1845-01-05", "--format", "csv", "--out", str(tmp_path))


def test_trace_mutes_heads() -> None:
    muted = ["--mute", "0.0", "--mute", "0.1", "--mute", "0.2", "--mute", "0.3", "--mute", "1.3"]
    text = printed("trace", "1845-01-05", "--attention", "cross", *muted)
    assert "→  January 5, 1845 " not in text
    assert "of cross attention muted; without muting: January 5, 1845" in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["1845-13-05"], InputError, "month 13"),
        (["1845-01-05", "--name", "encoder.memry"], UserError, "Did you mean 'encoder.memory'"),
        (["1845-01-05", "--format", "xml"], UserError, "Known: csv, json, npz, table"),
        (["1845-01-05", "--format", "npz"], UserError, "--out FILE"),
        (["1845-01-05", "--explain", "0.1.2"], UserError, "LAYER.HEAD.ROW.COL was expected"),
        (["1845-01-05", "--explain", "0.1.2.-3"], UserError, "LAYER.HEAD.ROW.COL was expected"),
        (["1845-01-05", "--explain", "0.1.2.99"], UserError, "no column 99"),
        (
            ["1845-01-05", "--explain", "0.1.2.3", "--name", "*"],
            UserError,
            "cannot be combined with --name or --format",
        ),
        (["1845-01-05", "--mute", "2.0"], UserError, "no layer 2 of encoder attention: known are 0, 1"),
        (["1845-01-05", "--mute", "0.4"], UserError, "heads are 0 to 3"),
        (["1845-01-05", "--mute", "0"], UserError, "LAYER.HEAD was expected, counted from 0, such as 0.2"),
        (["1845-01-05", "--mute", "0.0", "--attention", "crss"], UserError, "Did you mean 'cross'"),
        (["1845-01-05", "--model", "nowhere"], UserError, "no model 'nowhere'"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], error: type[UserError], message: str) -> None:
    with pytest.raises(error, match=message):
        printed("trace", *arguments)
