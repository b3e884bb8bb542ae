"""The tokenizers of Hugging Face folders, and the tokens that each family puts around a text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Engine

from seq2see.errors import FolderError, UserError, shown, suggest
from seq2see.interchange import languages
from seq2see.interchange.imported import LARGEST_LIST, brief, fitting, foreign, foreign_lines, ids_of, read_json
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers import sentencepiece
from seq2see.tokenizers.limits import read_engine
from seq2see.tokenizers.tokenizer import Tokenizer

Languages = tuple[str | None, str | None]
M2M100_SPARE, NLLB_SPARE = 8, 2  # rows of the tables without a token


def tokenizers_of(
    path: Path, family: str, settings: dict[str, Any], sizes: tuple[int, int], languages: Languages
) -> Tokenizers:
    """Return the tokenizers of both sides; ``settings`` are those of ``generate``."""
    about = read_json(path / "tokenizer_config.json") if (path / "tokenizer_config.json").is_file() else {}
    family = {"mvp": "bart", "plbart": "mbart"}.get(family, family)  # these have the same tokenizers
    engines = _engines(path, family, about, sizes)
    names = [{number: name for name, number in e.get_vocab(with_added_tokens=True).items()} for e in engines]

    def token(key: str, side: int) -> str:
        numbers = ids_of(settings, key)
        if not numbers or numbers[0] not in names[side]:
            raise FolderError(
                f"The vocabulary does not match: {key} is {brief(settings.get(key))}, and the tokenizer has no such "
                "token."
            )
        return names[side][numbers[0]]

    ends = [_end(about, engines[0]) or token("eos_token_id", 0), token("eos_token_id", 1)]
    pads = [token("pad_token_id", side) for side in (0, 1)]
    start = next(
        (token(key, 1) for key in ("decoder_start_token_id", "bos_token_id") if settings.get(key) is not None), ""
    )
    forced = [token("forced_bos_token_id", 1)] if settings.get("forced_bos_token_id") is not None else []
    source, target = _languages(family, about, settings, names, engines, languages)
    kind = str(about.get("tokenizer_class", "")).removesuffix("Fast")
    begin: tuple[list[str], list[str]]  # before and after the source
    frame = [start or (ends[1] if family in ("bart", "m2m_100", "fsmt") else pads[1]), *(target or forced)]
    if family == "bart":
        begin = [token("bos_token_id", 0)], [ends[0]]
    elif family == "m2m_100":
        behind = kind == "NllbTokenizer" and about.get("legacy_behaviour") is True
        begin = ([], [ends[0], *source]) if behind else (source, [ends[0]])
    elif family == "mbart" and "50" in kind:
        begin = source, [ends[0]]
    elif family == "mbart":
        begin = [], [ends[0], *source]
        if not forced and start != ends[1]:
            frame = target or [start]  # the decoder starts with the language itself
    else:
        begin = _own_frame(engines[0]) or (source, [ends[0]])
    return Tokenizers(
        Tokenizer.of_others(engines[0], *begin, pads[0], sizes[0]),
        Tokenizer.of_others(engines[1], frame, [ends[1]], pads[1], sizes[1]),
    )


def _end(about: dict[str, Any], engine: Engine) -> str | None:
    """Return the token that the tokenizer puts after a source. A model may have several end tokens for answers."""
    named = about.get("eos_token")
    named = named.get("content") if isinstance(named, dict) else named
    return named if isinstance(named, str) and engine.token_to_id(named) is not None else None


def _own_frame(engine: Engine) -> tuple[list[str], list[str]] | None:
    """Return the tokens that the tokenizer's own template puts before and after a text, if it has a template."""
    state = json.loads(engine.post_processor.__getstate__()) if engine.post_processor else {}
    if state.get("type") != "TemplateProcessing":
        return None
    parts = [part.get("SpecialToken", {}).get("id") for part in state["single"]]
    place = parts.index(None)
    return parts[:place], parts[place + 1 :]


def _languages(
    family: str,
    about: dict[str, Any],
    settings: dict[str, Any],
    names: list[dict[int, str]],
    engines: list[Engine],
    languages: Languages,
) -> tuple[list[str], list[str]]:
    """Return the tokens of both languages; empty lists for a family without languages."""
    known = [_known(engine) for engine in engines]
    given = [languages[0] or about.get("src_lang"), languages[1] or about.get("tgt_lang")]
    if family == "marian":
        # In a model with several target languages, the target language stands before the source.
        if languages[1] is None:
            return [], []
        return [_language(languages[1], known[0], "--to-language")], []
    if family not in ("m2m_100", "mbart"):
        if any(languages):
            raise UserError(
                f"A model of the family {family} has no language tokens: leave out --from-language and --to-language."
            )
        return [], []
    forced = settings.get("forced_bos_token_id")
    if family == "mbart" and forced is None and settings.get("decoder_start_token_id") != settings.get("eos_token_id"):
        forced = settings.get("decoder_start_token_id")
    if not given[1] and type(forced) is int and forced in names[1]:
        given[1] = names[1][forced]
    found = []
    for option, language, side in (("--from-language", given[0], 0), ("--to-language", given[1], 1)):
        if not language:
            raise UserError(f"This model knows many languages: give {option}. {_some(known[side])}")
        found.append([_language(str(language), known[side], option)])
    return found[0], found[1]


#: The languages that follow the pieces of a SentencePiece model, by the class of the tokenizer.
SPM_LANGUAGES = {"Nllb": languages.NLLB, "MBart50": languages.MBART50, "PLBart": languages.PLBART}
#: How a token of a language is written: in M2M100, in Marian, in mBART, in NLLB.
MARKED, BARE = (re.compile(r"__\w{1,20}__|>>[^<>\s]{1,20}<<"), re.compile(r"[a-z]{2}_[A-Z]{2}|[a-z]{3}_[A-Z][a-z]{3}"))


def _known(engine: Engine) -> list[str]:
    """Return the tokens of languages. One without marks must be a special token, since a text may contain it."""
    special = {token.content for token in engine.get_added_tokens_decoder().values() if token.special}
    names: list[str] = sorted(engine.get_vocab(with_added_tokens=True))
    return [name for name in names if MARKED.fullmatch(name) or (BARE.fullmatch(name) and name in special)]


def _language(code: str, known: list[str], option: str) -> str:
    for name in (f"__{code}__", f">>{code}<<", code):
        if name in known:
            return name
    codes = [name.strip("_<>") for name in known]
    near = suggest(code, codes) if codes else "It has no language tokens."
    raise UserError(f"{option} is {shown(code)}, a language that this model does not know. {near}")


def language_of(code: str, engine: Engine, option: str) -> str:
    """Return the token of a language in a vocabulary."""
    return _language(code, _known(engine), option)


def _some(known: list[str]) -> str:
    codes = [name.strip("_<>") for name in known]
    return f"Some of them: {', '.join(codes[:12])}." if codes else ""


def _with_languages(
    names: list[str], last: list[str], about: dict[str, Any], path: Path, size: int, lists: list[list[str]], spare: int
) -> list[str]:
    """Append the languages, then ``last``, to the names, in the order of their ids. The ids must be certain.

    The folder may state them. Otherwise a list of languages, from ``lists`` or from the folder, must fill the model's
    table to its last row, except for ``spare`` rows that models of this kind leave unused.
    """
    told = _told_ids(about, path)
    if {*told.values()} - {"<mask>"} and min(told) >= len(names) and max(told) < size:
        return [
            told.get(number, f"unused {number}") if number >= len(names) else names[number] for number in range(size)
        ]
    listed = _special(about, path)
    for codes in (*lists, listed):
        left = size - len(names) - len(codes) - len(last)
        if left in {0, spare} and {*listed} <= {*codes, *last}:
            return [*names, *codes, *last]
    left = size - len(names) - len(listed) - len(last)
    raise FolderError(
        f"The ids of the languages are uncertain: {path.name} lists {len(listed):,} languages, which leaves {left:,} "
        f"of the {size:,} rows of the embedding table without a token. Add the tokenizer.json that "
        "`AutoTokenizer.from_pretrained(…).save_pretrained(…)` writes."
    )


def _told_ids(about: dict[str, Any], path: Path) -> dict[int, str]:
    """Return the ids of languages that the folder states."""
    file = path / "added_tokens.json"
    found: dict[Any, Any] = {number: name for name, number in read_json(file).items()} if file.is_file() else {}
    decoder = about.get("added_tokens_decoder")
    for number, entry in decoder.items() if isinstance(decoder, dict) else ():
        if isinstance(entry, dict) and number.isdecimal() and len(number) < 10:
            found[int(number)] = entry.get("content")
    wanted = [MARKED, BARE]
    return {
        number: name
        for number, name in found.items()
        if type(number) is int
        and isinstance(name, str)
        and (name == "<mask>" or any(w.fullmatch(name) for w in wanted))
    }


def _engines(path: Path, family: str, about: dict[str, Any], sizes: tuple[int, int]) -> list[Engine]:
    """Return the tokenizers of the source and of the target."""
    if (path / "tokenizer.json").is_file():
        engines = []
        own = path / "target" / "tokenizer.json"  # where our export puts it
        for file, size in zip(
            (path / "tokenizer.json", own if own.is_file() else path / "tokenizer.json"), sizes, strict=True
        ):
            engine = read_engine(foreign(file, LARGEST_LIST))
            fitting(engine.get_vocab_size(), size, "tokenizer.json")
            engines.append(engine)
        return engines
    if family == "marian":
        return _marian(path, about, sizes)
    if family == "fsmt":
        return [_word_ends(path, name, size) for name, size in zip(("src", "tgt"), sizes, strict=True)]
    if family in ("bart", "blenderbot") and (path / "merges.txt").is_file():
        return [_byte_level(path, about, size) for size in sizes]
    model, size = _spm(path), sizes[0]
    kind = str(about.get("tokenizer_class", ""))
    if (path / "vocab.json").is_file():
        known_lists = [[f"__{code}__" for code in codes] for codes in (languages.M2M100, languages.WMT21)]
        told = about.get("num_madeup_words", M2M100_SPARE)
        names = _listed(path / "vocab.json")
        if len(names) < size:
            names = _with_languages(names, [], about, path, size, known_lists, told if type(told) is int else 0)
    elif family == "pegasus":
        # The first ids are for the masks of training. The pieces follow.
        masked = ["<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, 103))]
        names = ["<pad>", "</s>", *masked, *(piece.text for piece in model.pieces[2:])]
    else:
        names = ["<s>", "<pad>", "</s>", "<unk>", *(piece.text for piece in model.pieces[3:])]
        multi = "PLBart" in kind and about.get("language_codes") == "multi"
        known = next((codes for name, codes in SPM_LANGUAGES.items() if name in kind), languages.MBART)
        known_lists = [languages.PLBART_MORE if multi else known]
        spare = NLLB_SPARE if "Nllb" in kind else 0
        names = _with_languages(names, [] if multi else ["<mask>"], about, path, size, known_lists, spare)
    fitting(len(names), sizes[0], "the tokenizer")
    marked = [name for name in names[-sizes[0] // 2 :] if MARKED.fullmatch(name) or BARE.fullmatch(name)]
    around = [name for name in ("<s>", "</s>", "<pad>", "<unk>", *marked, "<mask>") if name in set(names)]
    padded = [*names, *(f"unused {number}" for number in range(sizes[0] - len(names)))]
    return [sentencepiece.engine_of(model, padded, "<unk>", around) for _ in sizes]


def _special(about: dict[str, Any], path: Path) -> list[str]:
    """Return the special tokens beyond the usual ones, such as languages, in the order in which the folder lists them."""
    file = path / "special_tokens_map.json"
    also = read_json(file) if file.is_file() else {}
    more = [
        name if isinstance(name, str) else str(name.get("content"))
        for key in ("additional_special_tokens", "extra_special_tokens")
        for name in (about.get(key) or also.get(key) or [])
        if isinstance(name, str | dict)
    ]
    return list(dict.fromkeys(more))


def _listed(file: Path) -> list[str]:
    """Return the tokens of a vocabulary in the order of their ids."""
    ids = read_json(file)
    names = sorted(ids, key=lambda name: ids[name] if type(ids[name]) is int else -1)
    if [ids[name] for name in names] != list(range(len(names))):
        raise FolderError(f"{file.name} does not number its {len(names):,} tokens from 0 without gaps.")
    return names


def _spm(path: Path) -> sentencepiece.SentencePiece:
    for name in ("sentencepiece.bpe.model", "spiece.model", "sentencepiece.model"):
        if (path / name).is_file():
            return sentencepiece.read(foreign(path / name, LARGEST_LIST))
    raise FolderError(f"{path.name} has no tokenizer: neither tokenizer.json nor a SentencePiece model was found.")


def _marian(path: Path, about: dict[str, Any], sizes: tuple[int, int]) -> list[Engine]:
    """Read Marian's files: source.spm and target.spm have the pieces, vocab.json has their ids."""
    engines = []
    for side, size in zip(("source", "target"), sizes, strict=True):
        own = path / "target_vocab.json"
        file = own if side == "target" and own.is_file() else path / "vocab.json"
        names = _listed(file)
        fitting(len(names), size, file.name)
        names += [f"unused {number}" for number in range(size - len(names))]
        engines.append(marian_engine(path, side, names, file.name))
    return engines


def marian_engine(path: Path, side: str, names: list[str], where: str) -> Engine:
    """Make the tokenizer of one side of a Marian model from its .spm; ``names`` are in the order of their ids."""
    spm = path / f"{side}.spm"
    if not spm.is_file():
        raise FolderError(f"{path.name} has no {spm.name}: the folder is incomplete.")
    known = set(names)
    if "<unk>" not in known:
        raise FolderError(f"{where} has no <unk>: it is not a Marian vocabulary.")
    special: list[str] = [name for name in ("</s>", "<unk>", "<pad>") if name in known]
    special += [name for name in names if name.startswith(">>") and name.endswith("<<")]
    return sentencepiece.engine_of(sentencepiece.read(foreign(spm, LARGEST_LIST)), names, "<unk>", special)


def _merges(path: Path) -> list[tuple[str, str]]:
    """Read the merges of a BPE, best first. A third column has their counts, which are not needed."""
    rows = [line.split(" ") for line in foreign_lines(path / "merges.txt") if not line.startswith("#version")]
    return [(row[0], row[1]) for row in rows if len(row) in (2, 3)]


def _bpe(path: Path, ids: dict[str, int], **settings: Any) -> Engine:
    known = [(a, b) for a, b in _merges(path) if a in ids and b in ids and a + b in ids]
    try:
        return Engine(models.BPE(ids, known, **settings))
    except Exception as error:  # the library raises bare Exception
        raise FolderError(f"The vocabulary and merges.txt cannot be read ({shown(str(error), 100)}).") from None


def _byte_level(path: Path, about: dict[str, Any], size: int) -> Engine:
    """Read BART's and Blenderbot's files, a byte-level BPE: vocab.json and merges.txt."""
    ids = {name: number for number, name in enumerate(_listed(path / "vocab.json"))}
    engine = _bpe(path, ids)
    fitting(engine.get_vocab_size(), size, "vocab.json")
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=about.get("add_prefix_space") is True)
    engine.decoder = decoders.ByteLevel()
    given = [about.get(f"{kind}_token") for kind in ("bos", "pad", "eos", "unk", "mask")]
    named = [one.get("content") if isinstance(one, dict) else one for one in given]
    names = ["<s>", "<pad>", "</s>", "<unk>", *_special(about, path), *(one for one in named if isinstance(one, str))]
    names = [name for name in dict.fromkeys(names) if name in ids or name in _special(about, path)]
    engine.add_special_tokens([AddedToken(name, normalized=False) for name in names if name != "<mask>"])
    engine.add_special_tokens([AddedToken("<mask>", normalized=False, lstrip=True)] if "<mask>" in ids else [])
    return engine


def _word_ends(path: Path, side: str, size: int) -> Engine:
    """Read FSMT's files: vocab-src.json, vocab-tgt.json and merges.txt, in which </w> ends a word."""
    file = path / f"vocab-{side}.json"
    names = _listed(file)
    fitting(len(names), size, file.name)
    engine = _bpe(
        path, {name: number for number, name in enumerate(names)}, unk_token="<unk>", end_of_word_suffix="</w>"
    )
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.decoder = decoders.BPEDecoder(suffix="</w>")
    engine.add_special_tokens([name for name in ("<s>", "<pad>", "</s>", "<unk>") if name in set(names)])
    return engine
