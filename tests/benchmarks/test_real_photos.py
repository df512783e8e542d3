from pathlib import Path

from real_photos import PAIRS, ROWS, Photos
from showtell.training import make_recipe

BY_NAME = {row.name: row for row in ROWS}


def test_every_row_is_a_valid_recipe_of_equal_effort(tmp_path):
    bench = Photos(tmp_path, photos=Path("photos"))
    for row in ROWS:
        recipe = make_recipe(bench.recipe(row, seed=2, rate=0.009))
        assert (recipe.training.seed, recipe.training.learning_rate) == (2, 0.009), row
        assert recipe.data.path == "photos" and not recipe.encoder.trained, row
        start = None if row.start is None else str(tmp_path / "runs" / row.start / "2" / "best")
        start = "small" if row.name == "small_sc" else start  # it comes with showtell
        assert recipe.training.start_from == start, row
        epochs = 8 if start is None else {"transformer_small_sc_long": 15, "hacap_letter": 3}.get(row.name, 6)
        assert (recipe.training.epochs, recipe.training.batch_size) == (epochs, 16), row
        if row.start is not None:  # or its weights could not be loaded
            assert recipe.model == make_recipe(bench.recipe(BY_NAME[row.start], seed=2)).model, row
    assert {name for pair in PAIRS for name in pair} <= set(BY_NAME)
