"""The page of a run: curves, warnings, scores of its best checkpoint, captions with attention, and its recipe.

run = read_run(Path("runs/mine"))
write_run_page(Path("report.html"), run, card, explanations)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from showtell.explanations.explanation import Explanation
from showtell.files import write_text
from showtell.reports import curves
from showtell.reports.explanation_page import render_explanations
from showtell.reports.run import Run, ScoreCard

NO_TERM = ("step", "epoch", "learning_rate", "loss", "gradient_norm")  # of a line of the log; the rest are terms

_STYLE = """
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .6rem 0; }
dl.facts dt { color: var(--soft-text); } dl.facts dd { margin: 0; overflow-wrap: anywhere; }
.cards { display: flex; flex-wrap: wrap; gap: 1rem 3rem; align-items: flex-start; }
.cards table { width: auto; }
.cards th[scope="row"] { font-weight: 400; }
"""


def write_run_page(
    file: Path, run: Run, card: ScoreCard | None, explanations: Sequence[Explanation], note: str | None = None
) -> None:
    """Write one page of HTML, whole or not at all.

    Args:
        file: the page.
        run: from `read_run`.
        card: the scores, if computed.
        explanations: of some photos by the run's checkpoint; may be empty.
        note: why there are no scores and explanations.

    Raises:
        DataError: it cannot be written.
    """
    signatures: dict[str, list[str]] = {}  # the names of the numbers by signature
    for name, signature in card.report.signatures.items() if card is not None else ():
        signatures.setdefault(signature, []).append(name)
    content = render_explanations(
        "run_page.html.j2",
        explanations,
        f"Run {run.title}",
        style=_STYLE,
        run=run,
        facts=_facts(run),
        charts=draw_curves(run),
        card=card,
        signatures=signatures,
        note=note,
    )
    write_text(file, content)


def _facts(run: Run) -> dict[str, str]:
    """Facts about the run, in the order of the page."""
    recipe, training = run.recipe, run.recipe["training"]
    model, encoder = recipe["model"], recipe["encoder"]
    rest = ", ".join(f"{key} {model[key]}" for key in ("attention", "cell", "hidden_size") if key in model)
    facts = {
        "state": run.progress,
        "best": run.best,
        "model": f"{model['name']}{f' ({rest})' if rest else ''}",
        "encoder": f"{encoder['name']}, {'trained' if encoder['trained'] else 'frozen'}",
        "objective": recipe["objective"]["name"],
        "data": str(recipe["data"]["path"]),
        "training": f"{training['optimizer']['name']}, learning rate {training['learning_rate']:g} "
        f"({training['schedule']}), batches of {training['batch_size']} images, seed {training['seed']}",
        "started from": training.get("start_from"),
    }
    return {name: fact for name, fact in facts.items() if fact}


def draw_curves(run: Run) -> list[Markup]:
    """A chart for the loss, one for each validation score, one for each further term and for the learning rate."""
    steps = [line for line in run.log if "loss" in line]
    scores = list(dict.fromkeys(name for line in run.validations for name in line["validation"] if name != "loss"))
    is_likelihood = all("words" in line for line in steps)
    has_other_terms = any(line.get("words") != line["loss"] for line in steps)
    shown = (*NO_TERM, "words") if is_likelihood else NO_TERM
    terms = dict.fromkeys(name for line in steps for name in line if name not in shown)

    def trained(name: str) -> curves.Points:
        return [(line["step"], line[name]) for line in steps if isinstance(line.get(name), float | int)]

    def validated(name: str) -> curves.Points:
        return [(line["step"], line["validation"][name]) for line in run.validations if name in line["validation"]]

    if is_likelihood:
        charts = {"cross-entropy per word": {"training": trained("words"), "validation": validated("loss")}}
        charts |= {"training loss, all terms": {"": trained("loss")}} if has_other_terms else {}
    else:  # the loss of a reward is no likelihood, but that of validation is
        charts = {"training loss, not a likelihood": {"": trained("loss")}}
        charts |= {"validation loss, cross-entropy per word": {"": validated("loss")}}
    charts |= {f"validation {name}": {"": validated(name)} for name in scores}
    charts |= {name.replace("_", " "): {"": trained(name)} for name in terms}
    charts |= {"gradient norm, before it is clipped": {"": trained("gradient_norm")}}
    charts |= {"learning rate": {"": trained("learning_rate")}}
    return [curves.chart(title, lines) for title, lines in charts.items()]
