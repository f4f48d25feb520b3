"""Making a handle touches nothing: the interpreter's own audit events tell, whatever way a library would take."""

import subprocess
import sys

SCRIPT = """
import dataclasses, sys

from marin.execution.version_codex import VersionCodex, build_context
from marin.execution.lazy import ArtifactStep
from marin.execution.remote_function import remote
from marin.experiment.data import files, hf, hf_download, interpolated, mixture, raw_download, tokenized, train_lm
from marin.experiment.data import filtered, normalized, trained_tokenizer
from marin.experiment.models import hf_model, llama_nano
from marin.experiment.tokenizers import marin_tokenizer
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training.optimizers import AdamConfig

TOUCHING = ("open", "os.", "socket.", "subprocess.", "shutil.", "glob.", "pathlib.", "tempfile.", "import", "fcntl.",
            "mmap.", "sqlite3.", "urllib.", "http.", "ctypes.", "signal.", "_posixsubprocess.", "pty.", "time.sleep")
touched = []
armed = False

def watch(event, arguments):
    if armed and event.startswith(TOUCHING):
        touched.append(f"{event} {arguments}")

sys.addaudithook(watch)

class Step(ArtifactStep):
    config = AdamConfig(lr=1.0)
    def build_config(self, ctx):
        return {"device": ctx.runtime_arg("device"), "lr": self.config.lr}

def describe():
    tinystories = tokenized(name="tokenized/tinystories", source="roneneldan/TinyStories", tokenizer=marin_tokenizer,
                            version="2026.07.01")
    train_lm(name="checkpoints/my-run", model=llama_nano, datasets={tinystories: 1.0}, batch_size=4, seq_len=2048)
    train_lm(name="checkpoints/my-run", version="dev", model=llama_nano, optimizer=AdamConfig(lr=6e-4),
             num_train_steps=100)
    for resources in ("cpu", "cuda:0", "tpu"):
        train_lm(name="checkpoints/my-run", model=llama_nano, datasets=tinystories, resources=resources)
    external = ArtifactStep.adopt(name="tokenized/external", version="2025.12.01",
                                  adopt_source="gs://my-bucket/tokenized/external/", kind=TokenizedCache)
    train_lm(name="checkpoints/other", model=llama_nano, datasets={external: 1.0})
    mixed = mixture({tinystories: 3, external: 1}, stages={100: {external: 1}}, max_train_batches={external: 9})
    train_lm(name="checkpoints/mixed", model=llama_nano, datasets=mixed)
    slowly = interpolated({tinystories: 1}, {external: 1}, end_step=99)
    train_lm(name="checkpoints/slowly", model=llama_nano, datasets=slowly)
    tokenizer = trained_tokenizer("tokenizers/mine", source=files("~/text/*.txt", "/etc/hostname"), vocab_size=300)
    tokenized("tokenized/mine", source="corpus/**/*.jsonl", tokenizer=tokenizer, validation="/etc/passwd")
    tokenized("tokenized/hub", source=hf("org/name", split="train"), tokenizer="/tmp/tokenizer.json", held_out=0.1)
    documents = normalized("documents/hub", source="org/name", keep=["meta.url"], unicode_form="NFC")
    filtered("documents/all", raw=documents, function=bool)
    hf_model("models/hub", "org/name", "main")
    hf_model("models/here", path="/tmp/model", tokenizer="/tmp/tokenizer.json")
    hf_download("raw/hub", hf_id="org/name", revision="main")
    raw_download("raw/web", urls=["https://host/a.jsonl", "s3://bucket/b.jsonl"])
    step = Step(name="mine", run=remote("a.b:c", resources="cuda:1"), runtime_args={"device": "tpu"})
    other = dataclasses.replace(step, version="2026.07.02")
    with build_context(VersionCodex(default="2026.07.01")):
        ArtifactStep(name="x", run="a:b", deps=(external,))
    return repr(other), {external: 1.0}

CONTROL
armed = True
describe()
armed = False
for line in touched:
    print(line)
"""


def touched(control=""):
    script = SCRIPT.replace("CONTROL", control)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_making_any_handle_performs_no_io():
    assert touched() == ""


def test_the_watch_would_see_it():
    seen = touched(
        "def marin_tokenizer_exists(): open('/etc/hostname').close()\nkept = describe\n"
        "def describe():\n    marin_tokenizer_exists()\n    import wave\n    return kept()"
    )
    assert "open ('/etc/hostname'" in seen
    assert "import " in seen
