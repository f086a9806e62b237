"""What a stranger's configuration, file or archive cannot make dpexp do, and what no log holds."""

import ast
import base64
import os

import pytest
from omegaconf import OmegaConf

from dpexp import trust
from dpexp._validate import UserError
from dpexp.cli.guard import check_composed
from dpexp.streams import Stream
from tests.conftest import REPOSITORY
from tests.test_architecture import MODULES, PACKAGE
from tests.test_cli import SMOKE
from tests.test_training import TINY

CODE = [*MODULES, PACKAGE / "__init__.py", REPOSITORY / "docs" / "conf.py"]


def dotted(node):
    """`a.b.c` of an expression, or its last attribute behind something longer."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "…"


def is_true(keywords, name):
    value = keywords.get(name)
    return isinstance(value, ast.Constant) and value.value is True


def is_false(keywords, name):
    value = keywords.get(name)
    return value is None or (isinstance(value, ast.Constant) and value.value is False)


def complaints(tree):
    """Calls that run code from what they read, or hand text to a shell."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else [node.module]
            roots = {str(name).partition(".")[0] for name in names}
            if roots & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}:
                yield node, "imports a pickle"
        if not isinstance(node, ast.Call):
            continue
        name, keywords = dotted(node.func), {k.arg: k.value for k in node.keywords}
        last = name.rpartition(".")[2]
        if name in ("eval", "exec", "compile", "__import__", "os.system", "os.popen"):
            yield node, name
        if last in ("extractall", "unpack_archive") or name.endswith(("tar.extract", "archive.extract")):
            yield node, f"{last} writes paths that an archive chose"
        if not is_false(keywords, "shell") or not is_false(keywords, "allow_pickle"):
            yield node, "shell or allow_pickle"
        if name in ("torch.load", "torch.jit.load", "torch.hub.load") and not is_true(
            keywords, "weights_only"
        ):
            yield node, f"{name} without weights_only"
        if last in (
            "read_pickle",
            "load_from_checkpoint",
            "load_model",
            "unsafe_load",
            "full_load",
            "load_all",
        ):
            yield node, last
        if name == "yaml.load" and "Loader" not in keywords:
            yield node, "yaml.load"
        if any(isinstance(value, ast.Attribute) and "Unsafe" in value.attr for value in keywords.values()):
            yield node, "an unsafe loader"


def test_nothing_that_is_read_is_run():
    for path in CODE:
        found = [(n.lineno, why) for n, why in complaints(ast.parse(path.read_text(encoding="utf-8")))]
        assert not found, (path, found)


@pytest.mark.parametrize(
    "line",
    [
        "eval(text)",
        "import pickle",
        "from pickle import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=flag)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.UnsafeLoader)",
        "subprocess.run(command, shell=True)",
        "tarfile.open(path).extractall(folder)",
        "os.system(command)",
        "pandas.read_pickle(path)",
    ],
)
def test_the_audit_sees(line):
    assert list(complaints(ast.parse(line)))


GOOD = [
    "dpexp.models.MLP",
    "dpexp.schedules.Linear",
    "torch.nn.Linear",
    "torch.nn.Sequential",
    "torch.optim.AdamW",
    "pytorch_lightning.Trainer",
]
BAD = [
    "os.system",
    "subprocess.Popen",
    "builtins.eval",
    "torch.load",
    "torch.hub.load",
    "torch.nn.modules.module.functools.partial",
    "torch.nn.functional.relu",  # a function: nothing that is a model
    "torch.optim.optimizer.functools.partial",
    "torch.utils.cpp_extension.load",
    "torchx.nn.Linear",
    "numpy.load",
    "pytorch_lightning.Trainerx",
    "pytorch_lightning.trainer.trainer.os.kill",
    "dpexp.data.npm.subprocess.run",
    "dpexp.data.command.fetched_by",  # runs what it is given
    "dpexp.durable.write_whole",
    "dpexp.cli.app._call",
    "dpexp.data.rows.Rows",  # not by the name that its room exports
    "dpexp.tracking.MLflowTracking.run.__globals__",
    "dpexp.trust.pkgutil.resolve_name",
    "dpexp.trust.os.system",
    "dpexp",
    "dpexp_evil.Model",
    "hydra.utils.instantiate",
    "",
    None,
    3,
    "${oc.env:HOME}",
    "${optimizer.target}",
]


@pytest.mark.parametrize("name", GOOD)
def test_what_dpexp_is_made_of_may_be_named(name):
    trust.require_trusted_names({"a": [{"_target_": name}]})
    assert callable(trust.trusted_object("model._target_", name))


@pytest.mark.parametrize("name", BAD)
def test_what_else_there_is_may_not(name):
    with pytest.raises(UserError, match=trust.ENVIRONMENT):
        trust.trusted_object("model._target_", name)


def test_the_user_adds_packages_in_the_environment(monkeypatch):
    monkeypatch.setenv(trust.ENVIRONMENT, "json.decoder, torch.nn.functional.relu")
    assert trust.trusted_object("x", "json.decoder.JSONDecoder").__name__ == "JSONDecoder"
    assert trust.trusted_object("x", "torch.nn.functional.relu")
    for elsewhere in ("json.encoder.JSONEncoder", "json.decoder.re.compile", "json.decoderx.A"):
        with pytest.raises(UserError):
            trust.trusted_object("x", elsewhere)


EVIL = "{_target_: os.system, command: 'touch ran'}"


@pytest.mark.parametrize(
    "override",
    [
        f"+data.extra={EVIL}",
        f"optimizer={EVIL}",
        "model._target_=os.getcwd",
        f"model.hidden_units=[{EVIL}]",
        f"privacy.layers={{a:{{parameters: '.*', clip_norm: {EVIL}}}}}",
        f"views={{count: 2, transform: {EVIL}}}",
        f"+hydra.callbacks.x={EVIL}",
        "hydra.launcher._target_=os.system",
        "hydra.sweeper._target_=hydra._internal.core_plugins.basic_sweeper.os.getcwd",
        "hydra.job_logging.handlers.console.class=logging.os.system",
        "+hydra.job_logging.handlers.x={'()': os.system, command: 'touch ran'}",
        "hydra.job_logging.handlers.console.stream=ext://os.environ",
        "+hydra.job.env_set.DPEXP_TRUSTED_TARGETS=os",
        "+hydra.job.env_set.PATH=/tmp/evil",
        "model='${oc.create:{_target_: os.system}}'",
        "model='${oc.select:nope,{_target_: torch.hub.load}}'",
        "tracking.experiment='${oc.env:SECRET_TOKEN}'",
        "trainer._target_=os.system",
    ],
)
def test_a_configuration_cannot_run_code_or_read_secrets(dpexp, outputs, monkeypatch, capsys, override):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    assert dpexp(SMOKE, override) == 1
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert "hunter2" not in printed.err + printed.out
    assert not (outputs.parent / "ran").exists()
    assert "evil" not in os.environ["PATH"]
    assert not (outputs / "artifacts").exists()


def test_a_strangers_file_cannot_trust_itself(dpexp, outputs, tmp_path, capsys):
    folder = tmp_path / "theirs" / "experiment"
    folder.mkdir(parents=True)
    text = (
        "# @package _global_\nhydra:\n  job:\n    env_set: {DPEXP_TRUSTED_TARGETS: os}\n"
        "model: {_target_: os.system, command: touch ran}\n"
    )
    (folder / "theirs.yaml").write_text(text, encoding="utf-8")
    assert dpexp("--config-dir", str(folder.parent), "+experiment=theirs") == 1
    assert "os.system" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_every_configuration_that_is_shipped_is_trusted():
    folder = REPOSITORY / "conf"
    for path in folder.rglob("*.yaml"):
        plain = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        group = path.relative_to(folder).parts[0]  # Hydra's own is checked by another list
        check_composed(OmegaConf.create({group: plain}))


def test_public_variables_may_be_read(dpexp, outputs, monkeypatch, capsys):
    monkeypatch.setenv("DPEXP_NAME", "from_the_shell")
    assert dpexp(SMOKE, "tracking.experiment='${oc.env:DPEXP_NAME}'", "task=plan") == 0


def spellings(key):
    yield key
    yield key.hex().encode()
    yield key.hex().upper().encode()
    yield base64.b64encode(key).rstrip(b"=")
    yield str(int.from_bytes(key, "big")).encode()
    yield str(list(key)).encode()
    yield repr(key)[2:-1].encode()


@pytest.mark.parametrize("noise", ["default", "secure"])
def test_no_key_of_lots_or_noise_is_written_anywhere(dpexp, outputs, monkeypatch, capsys, noise):
    session = Stream(bytes(range(100, 132)))
    monkeypatch.setattr(Stream, "secret", classmethod(lambda cls: session))
    features = ["features=dp_pca", "features.components=9"]
    assert dpexp(*TINY, *features, "privacy.steps=6", f"privacy.noise={noise}", "hydra.verbose=true") == 0
    streams = [session, *(session.child(name) for name in ("lots", "noise", "features", "torch"))]
    secrets = [spelling for stream in streams for spelling in spellings(stream.key)]
    secrets += [str(stream.integer()).encode() for stream in streams]
    printed = capsys.readouterr()
    written = {path: path.read_bytes() for path in outputs.parent.rglob("*") if path.is_file()}
    assert len(written) > 5
    for place, content in {**written, "screen": (printed.out + printed.err).encode()}.items():
        assert not [secret for secret in secrets if secret in content], place


def test_what_holds_private_figures_is_readable_by_its_owner_only(tmp_path):
    from dpexp.tracking.store import _made_for_its_owner

    path = tmp_path / "mlflow.db"
    _made_for_its_owner(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)  # the user shares it on purpose
    _made_for_its_owner(path)
    assert path.stat().st_mode & 0o777 == 0o640
