"""Captions as other evaluation kits write them: samples of lmms-eval, prediction tables of VLMEvalKit.

lmms-eval (`--log_samples`) writes a JSON object per line and image: `input` is the prompt, `filtered_resps` the answer,
and each metric has an object with what it was computed from, such as `"coco_CIDEr": {"image_id", "pred", "answer"}`.
VLMEvalKit writes a table (TSV, CSV, JSON) with a row per image: `index`, `question`, `answer`, `prediction`, of which
`answer` is a list of references in Python's notation. Both hold the references, so that a file can be scored alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from showtell.errors import DataError, UsageError, summarise

_IMAGE_KEYS = ("image_id", "img_id", "question_id", "id")  # of lmms-eval's objects, the first that is there
_NO_ANSWER = "failed to obtain answer"  # what VLMEvalKit writes in place of a caption
_LONGEST_LIST = 1_000_000  # characters of a list of references; a caption has some hundred

_REASONING = re.compile(r"^.*</think>", re.DOTALL)
_END_TOKENS = re.compile(r"(?:\s*(?:</s>|<\|[a-z_]+\|>|<end_of_utterance>|<eos>))+\s*$")
_ANSWER_MARKS = re.compile(r"^(?:\s|</?s>|\[/INST\]|<\|[a-z_]+\|>|assistant\b|answer\s*:|[:.])+", re.IGNORECASE)


@dataclass(frozen=True)
class KitCaption:
    """One image as a kit wrote it."""

    image: str  # its id
    file: str | None  # its file, where that is given
    captions: tuple[str, ...]  # the first is the one that the kit scored
    references: tuple[str, ...]  # none where the kit has none


@dataclass(frozen=True)
class KitFile:
    """A file of a kit, and a sentence on what its fields were taken for."""

    captions: tuple[KitCaption, ...]
    conventions: str


def kit_file(content: Any, path: Path) -> KitFile | None:
    """The captions of a file of lmms-eval or VLMEvalKit; None where it is no such file.

    Args:
        content: the JSON, the JSON lines as a list, or the rows of the table, as objects.
        path: for messages.

    Raises:
        DataError: it is one and has entries that cannot be used, or no captions.
    """
    if isinstance(content, Mapping):
        _refuse_summary(content, path)
        content = content.get("logs")  # lmms-eval before 0.3: one object for all samples
    rows = content if isinstance(content, list) else []
    first = rows[0] if rows and isinstance(rows[0], Mapping) else {}
    if "doc_id" in first:
        return _read_samples(rows, path)
    return _read_predictions(rows, path) if "prediction" in first else None


def refuse_other_tables(path: Path) -> None:
    """Refuse spreadsheets and pickles, which VLMEvalKit writes by default and as a last resort.

    Raises:
        UsageError: it is one; the message says how to get a table that is read.
    """
    if path.suffix.lower() in (".xlsx", ".xls", ".pkl", ".parquet"):
        raise UsageError(
            f"{path} is a {'pickle' if path.suffix == '.pkl' else 'table'} that is not read: save it as TSV, CSV or "
            "JSON (VLMEvalKit: export PRED_FORMAT=tsv; a spreadsheet: save as CSV in UTF-8)."
        )


def _refuse_summary(content: Mapping[str, Any], path: Path) -> None:
    if isinstance(content.get("results"), Mapping) and not content.keys().isdisjoint({"configs", "versions", "config"}):
        raise DataError(
            f"{path} is the summary of a run of lmms-eval, which has scores and no captions; score its samples "
            "(..._samples_TASK.jsonl, written with --log_samples) or submissions/..._results.json."
        )


def _read_samples(rows: Sequence[Any], path: Path) -> KitFile:
    """The samples of lmms-eval."""
    captions, counts, fields = [], _Counts(), ("doc_id", "filtered_resps", "target")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise DataError(f"Sample {number} of {path} is not a JSON object; run lmms-eval with --log_samples again.")
        basis = next((one for one in row.values() if isinstance(one, Mapping) and "pred" in one), {})
        key = next((key for key in _IMAGE_KEYS if isinstance(basis.get(key), str | int)), None)
        if key is not None:
            fields = (key, "pred", "answer")
        drawn = _texts(row.get("resps"))  # several where the run has --repeats; else the answer before filters
        answers = _texts(basis.get("pred", row.get("filtered_resps"))) or drawn
        answers = answers[:1] + drawn[1:] if len(drawn) > 1 else answers
        if not answers:
            raise DataError(f'Sample {number} of {path} has no answer: neither "pred" nor "filtered_resps" is a text.')
        arguments = row.get("arguments")  # in older files
        prompt = row.get("input", arguments[0] if isinstance(arguments, list) and arguments else None)
        cleaned = tuple(counts.clean(text, prompt if isinstance(prompt, str) else None) for text in answers)
        image = str(row.get("doc_id") if key is None else basis[key])
        references = counts.references(basis.get("answer", row.get("target")))
        captions.append(KitCaption(image, None, cleaned, references))
    return _checked(captions, path, "lmms-eval", fields, counts)


def _read_predictions(rows: Sequence[Any], path: Path) -> KitFile:
    """The predictions of VLMEvalKit."""
    captions, counts = [], _Counts()
    id_key = next((key for key in ("index", "image_id", "image_path", "id") if key in rows[0]), None)
    if id_key is None:
        raise DataError(f'{path} has a column "prediction" and no column "index" that says of which image.')
    for number, row in enumerate(rows, start=1):
        texts = _texts(row.get("prediction")) if isinstance(row, Mapping) else []
        image = str(row.get(id_key, "")).strip() if texts else ""
        if not image:
            raise DataError(f'Row {number} of {path} has no "{id_key}" or no text as "prediction".')
        question, file = row.get("question"), row.get("image_path")
        cleaned = tuple(counts.clean(text, question if isinstance(question, str) else None) for text in texts)
        references = counts.references(row.get("answer"))
        captions.append(KitCaption(image, file if isinstance(file, str) and file else None, cleaned, references))
    return _checked(captions, path, "VLMEvalKit", (id_key, "prediction", "answer"), counts)


def _checked(
    captions: Sequence[KitCaption], path: Path, kit: str, fields: tuple[str, str, str], counts: _Counts
) -> KitFile:
    ids: dict[str, int] = {}
    for one in captions:
        ids[one.image] = ids.get(one.image, 0) + 1
    twice = [image for image, times in ids.items() if times > 1]
    if twice:
        raise DataError(
            f"{path} has several rows of {len(twice)} image(s): {summarise(twice)}; keep one of each (two runs that "
            "were joined have all twice)."
        )
    image, caption, references = fields
    conventions = [f'{path} is of {kit}: "{image}" is the image, "{caption}" its caption']
    if any(one.references for one in captions):
        conventions[0] += f', "{references}" its references'
    return KitFile(tuple(captions), "; ".join([*conventions, *counts.described(len(captions))]) + ".")


class _Counts:
    """What was changed in captions and references, and how often."""

    def __init__(self) -> None:
        self._prompts = self._reasoning = self._tokens = self._lines = self._failed = self._characters = 0

    def clean(self, text: str, prompt: str | None) -> str:
        """An answer without reasoning, prompt and end tokens; no caption where the kit got no answer."""
        if text.strip().lower().startswith(_NO_ANSWER):
            self._failed += 1
            return ""
        without = _REASONING.sub("", text, count=1)
        self._reasoning += without != text
        answer = _END_TOKENS.sub("", without)
        self._tokens += answer != without
        rest = without_prompt(answer, prompt) if prompt else answer
        self._prompts += rest != answer
        self._lines += len(rest.split("\n")) > 1 and "\n" in rest.strip()
        return rest.strip()

    def references(self, value: Any) -> tuple[str, ...]:
        """References as a list, as a text that is one in Python's notation, or as one text."""
        if isinstance(value, list) and len(value) > 20 and all(isinstance(one, str) and len(one) < 2 for one in value):
            self._characters += 1  # a list that was kept as text and read letter by letter
            value = "".join(value)
        if isinstance(value, str) and value.strip().startswith("[") and len(value) < _LONGEST_LIST:
            try:
                value = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return (value,)
        return tuple(text for text in _texts(value) if text.strip())

    def described(self, captions: int) -> list[str]:
        """What was done, a clause each."""
        clauses = {
            "{} had reasoning in front, which was cut off": self._reasoning,
            "{} repeated the prompt, which was cut off": self._prompts,
            "{} ended in tokens of the model, which were cut off": self._tokens,
            "{} have several lines, which are scored as one": self._lines,
            '{} are "Failed to obtain answer" and scored as empty': self._failed,
            "the references of {} were kept letter by letter and joined": self._characters,
        }
        return [
            *(clause.format(f"{count} of {captions}") for clause, count in clauses.items() if count),
            "capitals and punctuation do not count",
        ]


def without_prompt(answer: str, prompt: str) -> str:
    """An answer that begins with its prompt, whatever its capitals and spaces, without it.

    >>> without_prompt("USER: Describe the image. ASSISTANT: A dog runs.", "Describe the  image.")
    'A dog runs.'
    >>> without_prompt("A dog runs.", "Describe the image.")
    'A dog runs.'
    """
    words = prompt.split()[:200]
    if not words:
        return answer
    pattern = r"\s+".join(map(re.escape, words))
    match = re.compile(pattern, re.IGNORECASE).search(answer, 0, 2 * len(prompt) + 100)
    if match is None or len(answer[: match.start()].split()) > 3:  # "<image> USER:" and the like may stand in front
        return answer
    return _ANSWER_MARKS.sub("", answer[match.end() :])


def _texts(value: Any) -> list[str]:
    """The texts of a value: itself, those of a list, those of lists in it."""
    if isinstance(value, str):
        return [value]
    return [text for one in value for text in _texts(one)] if isinstance(value, list) else []


def own_references(captions: Iterable[KitCaption], path: Path) -> dict[str, tuple[str, ...]]:
    """The references that a file of a kit has beside its captions, by image.

    Raises:
        DataError: some images have none.
    """
    references = {one.image: one.references for one in captions}
    bare = [image for image, texts in references.items() if not texts]
    if bare:
        raise DataError(
            f"{path} has no references for {len(bare)} of {len(references)} image(s): {summarise(bare)}; name a file "
            "or a dataset that has them with --references."
        )
    return references
