"""The sweep of docs/recipes.md: it trains a run for each trial, and ends what a kill broke off."""

import re
from pathlib import Path

import optuna
import yaml
from optuna.trial import TrialState

from tests.training.test_loop import fingerprints

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"


def test_the_sweep_of_the_page_resumes(tiny_recipe, tmp_path, monkeypatch, capsys):
    ((program),) = re.findall(r"^```python\n(import optuna\n.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    monkeypatch.chdir(tmp_path)
    tiny_recipe["training"]["epochs"] = 1
    Path("tiny.yaml").write_text(yaml.safe_dump(tiny_recipe))
    for shown, small in (
        ("flickr8k/sat_hard_xu2015", "tiny.yaml"),
        ("objective.reinforce", "training.learning_rate"),
        ("n_trials=40", "n_trials=2"),
    ):
        assert shown in program
        program = program.replace(shown, small)
    killed = optuna.create_study(study_name="hard", storage="sqlite:///sweep.db", direction="maximize")
    killed.enqueue_trial({"model.dropout": 0.5, "training.learning_rate": 0.02})
    trial = killed.ask()
    trial.suggest_categorical("model.dropout", [0.3, 0.5])
    trial.suggest_float("training.learning_rate", 0.01, 1, log=True)
    exec(program, {})
    runs = {folder.name: fingerprints(folder / "last") for folder in Path("sweep").iterdir()}
    assert len(runs) == 2
    assert "model.dropout=0.5,training.learning_rate=0.02" in runs
    states = [trial.state for trial in optuna.load_study(study_name="hard", storage="sqlite:///sweep.db").trials]
    assert states == [TrialState.FAIL, TrialState.COMPLETE, TrialState.COMPLETE]
    scores = [float(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert scores == sorted(scores, reverse=True)
