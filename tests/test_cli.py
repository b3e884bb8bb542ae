"""The command line as a user meets it: in a process of its own, by its words and its exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner, Result

from seq2see import cli
from seq2see.answering.answer import NoText
from seq2see.cli import app, main, output
from seq2see.cli.lines import LONGEST, lines_of
from seq2see.errors import UserError


def run(*arguments: str, stdin: str | bytes = "", module: str = "seq2see") -> subprocess.CompletedProcess[str]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run([sys.executable, "-m", module, *arguments], input=data, capture_output=True)
    result = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in result.stderr
    return result


def test_commands_and_options_are_frozen() -> None:
    """Whoever changes this list changes what people have in their scripts."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = {
        name: sorted(option for parameter in command.params for option in parameter.opts if option.startswith("--"))
        for name, command in commands.items()
    }
    assert options["predict"] == [
        "--align", "--beam", "--columns", "--dates", "--device", "--engine", "--file", "--format", "--glossary", "--json",
        "--length-penalty", "--like", "--max-length", "--min-confidence", "--model", "--n-best", "--only", "--order",
        "--out", "--pattern", "--prefix", "--raw", "--ray", "--resume", "--strict", "--threads", "--verbose", "--whole",
        "--withheld",
    ]  # fmt: skip
    assert options["evaluate"] == [
        "--at-least", "--beam", "--columns", "--compare", "--device", "--json", "--model", "--sample", "--seed",
        "--worst", "--years",
    ]  # fmt: skip
    assert options["calibrate"] == [
        "--chrf", "--columns", "--device", "--exact", "--file", "--json", "--like", "--seed",
    ]  # fmt: skip
    assert options["score"] == ["--columns", "--json", "--model"]
    assert options["train"] == [
        "--budget", "--columns", "--count", "--device", "--distil", "--ensemble", "--from", "--log", "--out",
        "--preset", "--resume", "--rules", "--search", "--seed", "--set", "--steps", "--strict", "--teacher",
        "--test", "--threads", "--tokenizer", "--unlabelled", "--unseen", "--validation", "--vocabulary", "--watch",
        "--years",
    ]  # fmt: skip
    assert options["doctor"] == ["--columns", "--json", "--preset", "--test", "--validation", "--why"]
    assert options["tokenize"] == ["--columns", "--data", "--model", "--target", "--vocabulary"]
    assert options["presets"] == ["--vocabulary"]
    assert options["runs"] == ["--compare", "--json"]
    assert options["demo"] == []
    assert options["import"] == ["--from-language", "--out", "--to-language"]
    assert options["export"] == ["--file", "--format", "--model", "--out", "--quantization", "--to"]
    assert options["push"] == ["--model", "--private"]
    assert options["compress"] == ["--model", "--out"]
    assert options["serve"] == [
        "--access-log", "--device", "--engine", "--host", "--model", "--open", "--port", "--proxy", "--token-file",
    ]  # fmt: skip
    assert options["see"] == ["--bits", "--html", "--member", "--model", "--open"]
    assert options["trace"] == [
        "--attention", "--explain", "--format", "--member", "--model", "--mute", "--name", "--out",
    ]  # fmt: skip
    assert options["site"] == ["--model"]
    assert options["inspect"] == ["--seconds"]
    assert options["watch"] == ["--host", "--open", "--port"]


def test_every_command_is_found_by_its_name() -> None:
    """A command is imported alone when it is called, by this table."""
    from seq2see.cli import HOMES, build

    assert list(typer.main.get_command(app).commands) == list(HOMES)  # type: ignore[attr-defined]
    for name, home in HOMES.items():
        assert name in typer.main.get_command(build(home)).commands  # type: ignore[attr-defined]


def test_help_answers_without_torch() -> None:
    code = (
        "import sys\nsys.argv = ['seq2see', '--help']\nfrom seq2see.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'tokenizers'} & set(sys.modules)\nsys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "predict" in done.stdout


def test_there_is_one_console_for_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A complaint beside a progress bar goes through the bar's console, or a dead bar stays on the screen."""
    monkeypatch.setenv("COLUMNS", "80")
    bar = output.progress_bar("steps")
    assert bar.console is output._made(True)
    bar.add_task("training", total=2000, speed="1,234.5/s")
    (line,) = bar.console.render_lines(next(iter(bar.get_renderables())), pad=False)
    assert sum(segment.cell_length for segment in line) == 76  # ^C^C has room beside it
    output.hush()
    assert bar.console.quiet
    output.complain("Another process says this.")
    output.complain("The last word.", last=True)
    assert tuple(capsys.readouterr()) == ("", "seq2see: The last word.\n")


def test_predict_answers_the_documents_in_their_raw_form() -> None:
    done = run("predict", "--raw", "--dates=1845-01-05,1845-01-06,1426-08-10,2025-09-03")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "<sos>January 5, 1845<eos><pad><pad>",
        "<sos>January 6, 1845<eos><pad><pad>",
        "<sos>August 10, 1426<eos><pad><pad>",
        "<sos>September 3, 2025<eos>",
    ]
    assert done.stderr == ""


def test_refused_inputs_are_explained_and_the_others_answered() -> None:
    done = run("predict", "1845-01-05", "2023-02-30", "", "١٨٤٥-٠١-٠٥", "2025-09-03")
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["January 5, 1845", "", "", "", "September 3, 2025"]
    lines = done.stderr.splitlines()
    assert [line.split(":")[1].strip() for line in lines[:3]] == ["input 2", "input 3", "input 4"]
    assert lines[3] == "seq2see: 2 answered, 3 refused."


def test_nothing_answered_is_status_2() -> None:
    assert run("predict", "nonsense").returncode == 2
    done = run("predict", stdin="")
    assert done.returncode == 2
    assert "nothing to answer" in done.stderr
    closed = subprocess.run(f"{sys.executable} -m seq2see predict <&-", shell=True, capture_output=True, text=True)
    assert closed.returncode == 2
    assert closed.stderr == done.stderr


def test_files_pipes_and_json(tmp_path: Path) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_bytes(b"1845-01-05\r\n\n2025-09-03")
    words = ["predict", "--file", str(source), "--json", "--n-best", "2", "--out", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "line 2: The line is empty" in done.stderr
    first, second, third = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    assert first["output"] == "January 5, 1845"
    assert first["log_probability"] == pytest.approx(0, abs=0.01)
    assert [token["token"] for token in first["tokens"]][-2:] == ["5", "<eos>"]
    assert len(first["alternatives"]) == 1
    assert second == {"input": "", "error": second["error"]}
    assert third["input"] == "2025-09-03"
    piped = run("predict", stdin="1845-01-05\n2025-09-03\n")
    assert piped.stdout == "January 5, 1845\nSeptember 3, 2025\n"


def test_a_line_that_is_not_utf8_is_refused_alone(tmp_path: Path) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"\xef\xbb\xbf1845-01-05\n\xff\xfe\n2025-09-03\n")
    for form in ([], ["--json"]):
        done = run("predict", "--file", str(source), "--out", str(out), *form)
        assert done.returncode == 1
        assert "line 2: The line is not UTF-8 text" in done.stderr
        assert len(out.read_text(encoding="utf-8").splitlines()) == 3
    assert json.loads(out.read_text(encoding="utf-8").splitlines()[2])["output"] == "September 3, 2025"


def test_binary_data_and_a_huge_line_are_refused_in_one_sentence(tmp_path: Path) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\n" * 100)
    done = run("predict", "--file", str(source), "--out", str(out))
    assert done.returncode == 2
    assert done.stderr.rstrip() == (
        "seq2see: in.txt is binary data, not text: one input a line was expected, in UTF-8."
    )
    assert list(tmp_path.iterdir()) == [source]
    some = [*[b"1845-01-05"] * 30, b"a\0b", b"\xff\xfe", "é".encode()]  # text, but for a few lines
    source.write_bytes(b"\n".join(some * 100) + b"\n")
    assert len(list(lines_of(source))) == 3300
    source.write_bytes(b"\n".join([b"\0\xff" * 40, b"1845-01-05", b"2025-09-03"] * 100) + b"\n")
    assert [*lines_of(source)][1::3] == ["1845-01-05"] * 100
    source.write_bytes(b"a" * LONGEST + b" more\n1845-01-05\n")  # its end is not lost without a word
    found = list(lines_of(source))
    assert isinstance(found[0], NoText)
    assert "The line has more than 4,000,003 bytes" in found[0].reason
    assert found[1:] == ["1845-01-05"]


def test_columns_of_a_file_are_chosen_by_number_or_by_name(tmp_path: Path) -> None:
    table, records = tmp_path / "in.tsv", tmp_path / "in.jsonl"
    table.write_text("walk\twalked\tV;PST\ngo\n", encoding="utf-8")
    first, second = lines_of(table, ["1", "3"])
    assert first == "walk\tV;PST"
    assert isinstance(second, NoText)
    assert "--columns is 1+3: the line has 1 column" in second.reason
    records.write_text('{"lemma": "walk", "tags": "V;PST"}\n{"lemma": "go"}\n"x"\n', encoding="utf-8")
    found = list(lines_of(records, ["lemma", "tags"]))
    assert [found[0], found[2]] == ["walk\tV;PST", "x"]
    assert isinstance(found[1], NoText)
    assert "has no text lemma or tags" in found[1].reason
    table.write_text("x\t1845-01-05\n", encoding="utf-8")
    done = run("predict", "--file", str(table), "--columns", "2")
    assert (done.returncode, done.stdout) == (0, "January 5, 1845\n")
    for columns in ("lemma+tags", "1+2,3", "0"):
        with pytest.raises(UserError, match=r"Names are for \.jsonl files\."):
            list(lines_of(table, columns.split("+")))
    [other, *_] = lines_of(records)
    assert isinstance(other, NoText)
    assert other.reason.endswith(" --columns 'lemma+tags' reads others.")
    done = run("predict", "1845-01-05", "--columns", "2")
    assert done.returncode == 2
    assert "--columns chooses columns of lines" in done.stderr


def test_the_questions_are_not_overwritten(tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("1845-01-05\n")
    done = run("predict", "--file", str(source), "--out", str(source))
    assert done.returncode == 2
    assert source.read_text() == "1845-01-05\n"


def test_a_full_disk_is_one_sentence() -> None:
    command = f"yes 1845-01-05 | head -n 500 | {sys.executable} -m seq2see predict > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "--model", "date", "1845-01-05"], "Did you mean 'dates'"),
        (["predict", "--file", "no-such-file"], "There is no file 'no-such-file'"),
        (["predict", "1845-01-05", "--dates=1845-01-05"], "more than one way"),
        (["trace", "1845-01-05", "--name", "encoder.layer.0.*"], "Layers are encoder.layers.0 to 1 and decoder"),
        (["evaluate", "--years", "2025-1000"], "1000 to 9999"),
        (["evaluate", "--years", "2000", "--sample", "400"], "have 366 dates"),
        (["evaluate", "sentences"], "'dates' was expected"),
        (["train", "dates", "--preset", "bse"], "Did you mean 'base'"),
        (["train", "dates", "--set", "model.d_modle=3"], "Did you mean 'd_model'"),
        (["train", "dates", "--device", "cuda"], "--device is 'cuda'"),
        (["train", "dates", "--out", "pyproject.toml"], "is a file"),
    ],
)
def test_errors_say_what_to_do_and_exit_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, since each of its own would import torch to say one sentence."""
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(sys, "argv", ["seq2see", *arguments])
    try:
        with pytest.raises(SystemExit) as end:
            main()
    finally:
        signal.signal(signal.SIGINT, before)
    said = capsys.readouterr()
    assert end.value.code == 2
    assert message in said.err.replace("\n", " ")
    assert "Traceback" not in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "-5"], "put -- before it: seq2see predict -- -5"),
        (["tokenize", ""], "The text is empty"),
        (["watch", "nosuch"], "There is no folder 'nosuch'. Give the folder of a training"),
        (["plot", "mask", "--text", ""], "--text is empty"),
        (["plot", "mask", "--text", "  "], "--text has no words"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_done(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, UserError), done.output
    assert message in str(done.exception)
    assert done.output == ""
    assert not list(tmp_path.iterdir())


def test_the_demo_answers_four_dates_and_names_commands_that_exist() -> None:
    shown = CliRunner().invoke(app, ["demo"]).stdout
    rows = re.findall(r"(\d{4}-\d\d-\d\d) │ (\w+ \d+, \d{4}) +│ 99\.99\d% │ +'\w' 99\.99\d%", shown)
    assert rows == [
        ("1845-01-05", "January 5, 1845"), ("1845-01-06", "January 6, 1845"),
        ("1426-08-10", "August 10, 1426"), ("2025-09-03", "September 3, 2025"),
    ]  # fmt: skip
    assert "A Transformer of 18,692 parameters: 2+2 layers, 4 heads, d_model 16.\n" in shown
    named = re.findall(r"^  seq2see ([\w-]+)", shown, re.MULTILINE)
    assert len(named) >= 5
    assert {*named} <= {*typer.main.get_command(app).commands, "--help"}  # type: ignore[attr-defined]


def test_evaluate_prints_scores_and_every_miss() -> None:
    done = CliRunner().invoke(app, ["evaluate", "dates", "--years", "1000-2025", "--sample", "500"])
    assert done.exit_code == 0
    assert "500 of 500 (100.0000%)" in done.stdout
    scores = json.loads(CliRunner().invoke(app, ["evaluate", "--sample", "100", "--json"]).stdout)
    assert (scores["pairs"], scores["exact"], scores["misses"]) == (100, 100, [])


def test_train_makes_a_folder_that_the_others_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = str(tmp_path / "model")
    settings = ["--set", "training.batch_tokens=400", "--set", "training.evaluate_every=5"]
    invoke = CliRunner().invoke
    few = ["--count", "200", "--steps", "10", "--years", "2000"]
    words = ["train", "dates", "--out", out, *few, *settings]
    monkeypatch.setattr(sys, "argv", ["seq2see", *words])  # which the card repeats
    done = invoke(app, words)
    assert done.exit_code == 0, done.exception
    table = done.stdout.splitlines()
    assert table[0].split() == ["step", "epoch", "loss", "held-out", "loss", "exact", "match", "seconds"]
    assert [line.split()[0] for line in table[1:3]] == ["5", "10"]
    card = (tmp_path / "model" / "card.md").read_text()
    assert f"seq2see train dates --out {out} --count 200" in card
    missed = invoke(app, ["evaluate", "--model", out, "--sample", "20", "--at-least", "0.5"])
    assert missed.exit_code == 1
    assert missed.stdout.count("miss: ") == 20
    again = invoke(app, ["train", "dates", "--out", out])
    assert isinstance(again.exception, UserError)
    assert "already holds a finished model" in str(again.exception)

    def resume(*more: str) -> Result:
        return invoke(app, ["train", "dates", "--out", out, "--count", "200", "--resume", *settings, *more])

    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path(out).iterdir()}
    for name in ("checkpoints", ".shards"):
        (Path(out) / name).mkdir()  # as if it was killed after its last word
    finished = resume("--steps", "10", "--years", "2000", "--set", "training.accumulate=2")
    assert set(before) == set(Path(out).iterdir())
    assert (finished.exit_code, finished.stdout) == (0, ""), finished.exception
    assert "holds a finished model: there is nothing to resume" in finished.stderr
    for more, message in (
        (["--steps", "11"], "training.steps = 10, but now it is 11"),
        (["--seed", "2"], "training.seed = 1, but now it is 2"),
        (["--preset", "base"], "model.d_model = 16, but now it is 512"),
        (["--tokenizer", "bpe"], "--tokenizer is for files of pairs"),
    ):
        other = resume(*more)
        assert isinstance(other.exception, UserError), other.output
        assert message in str(other.exception)
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    task = invoke(app, ["train", str(tmp_path / "pairs.tsv"), "--out", out, "--resume"])
    assert "task = dates, but now it is pairs" in str(task.exception)
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path(out).iterdir()} == before


def test_a_closed_pipe_is_no_error() -> None:
    command = (
        f"yes 1845-01-05 | head -n 20000 | {sys.executable} -m seq2see predict | head -n 1; exit ${{PIPESTATUS[2]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (141, "January 5, 1845\n", "")


@pytest.mark.parametrize("arguments", [["presets"], ["predict", "1845-01-05"]])
def test_every_command_hangs_up_quietly(arguments: list[str]) -> None:
    """One writes tables, the other lines that are still on their way at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "seq2see", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


#: Commands, and all that they print: scripts read it. What differs between machines is masked.
PRINTED = {
    "evaluate --sample 3": """
exact match           3 of 3 (100.0000%)
character error rate  0.0000%
loss                  ε nats a token, teacher-forced
time                  …
""",
    "evaluate --sample 3 --json": """
{"data": "dates", "years": [1000, 9999], "pairs": 3, "exact": 3, "exact_match": 1.0, "character_error_rate": 0.0, \
"loss": ε, "seconds": …, "misses": []}
""",
    "evaluate pairs.tsv": """
exact match           2 of 3 (66.67%)
character error rate  2.04%
word error rate       11.11%  (WER)
chrF2                 89.21  (nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:…)
loss                  0.4 nats a token, teacher-forced
time                  …

     right       said   times  where in the answer, on average
         8          9       1  62%

the worst answers, by chrF
 69.5  2020-02-29 → February 29, 2020   (right: February 28, 2020)
""",
    "evaluate pairs.tsv --json": """
{"pairs": 3, "beam": 1, "exact": 2, "exact_match": 0.6666, "character_error_rate": 0.0204, "token_error_rate": 0.1111, \
"by_source": {"sources": 3, "exact_match": 0.6666, "token_error_rate": 0.1111}, "bleu": null, "chrf": {"score": 89.2073, \
"signature": "chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:…"}, "loss": 0.4000, "loss_pairs": 3, \
"seconds": …, "confusions": [{"expected": "8", "given": "9", "times": 1, "place": 0.6176}], \
"by_length": [{"characters": "9-12", "pairs": 3, "exact_match": 0.6666, "bleu": null}], \
"worst": [{"chrf": 69.5304, "input": "2020-02-29", "expected": "February 28, 2020", "output": "February 29, 2020"}]}
""",
    "evaluate pairs.tsv --compare dates dates": """
3 pairs; A is dates, B is dates.
                   A       B     B-A     95 % interval       p
exact match    66.67   66.67   +0.00    +0.00 to +0.00   1.000  may be chance
exact match|bs:1000|rs:12345
""",
    "evaluate pairs.tsv --compare dates dates --json": """
{"pairs": 3, "a": "dates", "b": "dates", "results": [{"metric": "exact match", "a": 66.6666, "b": 66.6666, \
"interval": [0.0, 0.0], "p_value": 1.0, "signature": "exact match|bs:1000|rs:12345"}]}
""",
    "score pairs.tsv": """
-0.0000\t-0.0000\t1845-01-05\tJanuary 5, 1845
-20.8042\t-1.1558\t2020-02-29\tFebruary 28, 2020
-0.0000\t-0.0000\t1999-12-31\tDecember 31, 1999
""",
    "doctor pairs.tsv": """
fault: 3 pairs are too few to train on.
    → collect at least 500; about 2,000 suffice for a simple rule
pairs            3 in pairs.tsv
written in       digits → Latin letters (a guess)
split            1 for training, 1 for validation, 1 for the test
source length    12 tokens (median), 12 at 95 %, 12 at most (median: 10 characters)
target length    19 tokens (median), 19 at 95 %, 19 at most (median: 17 characters)
cut into         characters (16 tokens) → characters (22 tokens): both sides are short, or of signs
recipe           d_model 96, 3+3 layers, dropout 0.3, 512 tokens a batch, for 1 pair, 18 tokens
model            787,392 parameters
memory           46 MiB for the worst batch (an estimate)
time             …, less when nothing more comes
""",
    "see 1845-01-05 --html page.html": """
page.html: … KB; it answers any text, offline. Open it in a browser.
""",
    "predict 1845-01-05 --n-best 2 --align": """
January 5, 1845\t-0.0000\tJanuary 5, 1847\t-6.7478\t2-0 4-1 4-2 0-3
""",
    "predict 1845-01-05 --verbose": """
seq2see: answered by ctranslate2, float32
January 5, 1845
""",
    "predict nonsense? --json": """
seq2see: input 1: 'nonsense?' is not of the form YYYY-MM-DD: an ISO date of the years 1000 to 9999 was expected, \
such as 1845-01-05.
{"input": "nonsense?", "error": "'nonsense?' is not of the form YYYY-MM-DD: an ISO date of the years 1000 to 9999 was \
expected, such as 1845-01-05."}
seq2see: 0 answered, 1 refused.
""",
}


@pytest.mark.parametrize("command", PRINTED)
def test_what_a_command_prints(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pairs.tsv").write_text(
        "1845-01-05\tJanuary 5, 1845\n2020-02-29\tFebruary 28, 2020\n1999-12-31\tDecember 31, 1999\n"
    )
    found = CliRunner().invoke(app, command.split()).output
    found = re.sub(r"-?\d\.\d+e-\d+", "ε", found)
    found = re.sub(r'("seconds": |time +)[^,}\n]+(, \d+ (dates|pairs)/s)?', r"\1…", found)
    found = re.sub(r"(?<=version:)[\d.]+|\d+(?= KB)", "…", found)
    assert re.sub(r"(\d+\.\d{4})\d+", r"\1", found) == PRINTED[command].removeprefix("\n")


def test_tokenize_shows_every_cut_and_every_character() -> None:
    """Spaces and line breaks can be seen, and square brackets are no markup."""
    done = CliRunner().invoke(app, ["tokenize", "[b] a\nc"])
    assert [line.split() for line in done.output.splitlines()] == [
        ["tokenizer", "tokens", "characters", "a", "token", "cut", "into"],
        ["characters", "7", "7", "1.0", "[|b|]|␣|a|⏎|c"],
        ["small", "words", "5", "7", "1.4", "<unk>|<unk>|<unk>|a|<unk>"],
        ["bpe", "6", "7", "1.2", "<0x5B>|b|<0x5D>|␣a|<0x0A>|c"],
        ["wordpiece", "5", "7", "1.4", "<unk>|b|<unk>|a|c"],
        ["unigram", "6", "7", "1.2", "<0x5B>|b|<0x5D>|␣a|<0x0A>|c"],
    ]
    done = CliRunner().invoke(app, ["tokenize", "5 M", "--model", "dates"])
    assert done.output == (
        "token  id  characters\n<sos>  65            \n5       5         0-1\n␣      64         1-2\n"
        "M      22         2-3\n<eos>  66            \ncharacters: 3 tokens for 3 characters.\n"
    )


def test_presets_print_the_papers_column() -> None:
    lines = run("presets").stdout
    assert "65 M" in lines
    assert "213 M" in lines
    assert "18,692" in lines


INTERRUPTED = """
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    raise ImportError from None
"""
IMPORTING = """
def run():
    import library
"""
DELETING = """
class Lost:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def run():
    Lost()
    print("It goes on.")
"""
CONVERTING = """
def run():
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        raise ValueError("could not determine the shape") from None
"""


@pytest.mark.parametrize("run", [IMPORTING, DELETING, CONVERTING])
def test_ctrl_c_ends_a_command_wherever_python_would_lose_it(tmp_path: Path, run: str) -> None:
    """CTranslate2 and torch turn an exception at their import into an abort or another one, and safetensors anywhere."""
    (tmp_path / "library.py").write_text(f"import signal\n{INTERRUPTED}")
    code = f"import signal\nfrom seq2see import cli\n{run}\ncli._run = run\ncli.main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"seq2see: Stopped.\n")


WAITING = """
import io, signal, sys
from seq2see.cli import main

class Waiting(io.RawIOBase):
    def readable(self):
        return True

    def readinto(self, buffer):
        signal.raise_signal(signal.SIGINT)
        return 0

sys.argv = ["seq2see", "predict"]
sys.stdin = io.TextIOWrapper(io.BufferedReader(Waiting()))
main()
"""


def test_a_predict_that_is_interrupted_while_it_waits_for_a_line_is_quiet() -> None:
    done = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_a_second_model_is_not_taken_in_silence() -> None:
    for words in (["--model", "dates", "--model", "en-fr"], ["-m", "dates", "--model=en-fr"]):
        done = CliRunner().invoke(app, ["predict", *words, "1845-01-05"])
        assert isinstance(done.exception, UserError)
        assert "--model was given 2 times (dates, en-fr), but one model was expected" in str(done.exception)
    assert CliRunner().invoke(app, ["predict", "--model", "dates", "--", "1845-01-05"]).exit_code == 0


@pytest.mark.parametrize("ended", [KeyboardInterrupt(), SystemExit(130)])
def test_after_ctrl_c_nothing_is_unloaded_and_no_output_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ended: BaseException
) -> None:
    """Python needs a second to unload what a server imports. Typer turns an interrupt into SystemExit."""
    out = (tmp_path / "out").open("w", encoding="utf-8")

    def run() -> None:
        print("January", end="")
        raise ended

    def leave(status: int) -> None:
        raise RuntimeError(f"{status} {(tmp_path / 'out').read_text(encoding='utf-8')}")

    monkeypatch.setattr(cli, "_run", run)
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(sys, "stdout", out)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(RuntimeError, match="130 January"):
            cli.main()
    finally:
        signal.signal(signal.SIGINT, before)
