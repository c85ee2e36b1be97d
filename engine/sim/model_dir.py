"""Writes the simulated model's directory: made once, named by its contents, complete or absent."""

import hashlib
import json
import os
import shutil
import tempfile
from importlib import resources
from pathlib import Path

from engine.sim.tokenizer import END_OF_TEXT, STOP_TOKENS, special_token_ids, token_ids, tokenizer_json


def ensure(parent: Path, context_window: int) -> Path:
    """The directory under `parent` that holds a simulated model with this context window, made if it is missing.

    Raises:
        OSError: the directory cannot be written.
    """
    files = contents(context_window)
    digest = hashlib.sha256()
    for name, text in sorted(files.items()):
        digest.update(f"{name}\0{len(text)}\0{text}".encode())
    target = parent / f"sim-{digest.hexdigest()[:16]}"
    if not target.is_dir():
        _write(target, files)
    return target


def contents(context_window: int) -> dict[str, str]:
    """The text of each file in the directory."""
    special = special_token_ids()
    stop_ids = [special[token] for token in STOP_TOKENS]
    template = resources.files("engine.sim").joinpath("chat_template.jinja").read_text("utf-8")
    documents = {
        "config.json": {
            "architectures": ["Glm4MoeForCausalLM"],
            "model_type": "glm4_moe",
            "vocab_size": len(token_ids()) + len(special),
            "max_position_embeddings": context_window,
            "eos_token_id": stop_ids,
            "pad_token_id": special[END_OF_TEXT],
            "dtype": "bfloat16",
            # Made up: they only size the simulated cache's transfers.
            "hidden_size": 128,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "num_key_value_heads": 1,
        },
        "generation_config.json": {"eos_token_id": stop_ids, "pad_token_id": special[END_OF_TEXT]},
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": context_window,
            "eos_token": END_OF_TEXT,
            "pad_token": END_OF_TEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": template,
        },
    }
    return {name: json.dumps(document, ensure_ascii=False) for name, document in documents.items()}


def _write(target: Path, files: dict[str, str]) -> None:
    """Writes beside the target and renames, so that two who make it at once both end with a whole one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=target.parent))
    try:
        for name, text in files.items():
            (draft / name).write_text(text, "utf-8")
        draft.chmod(0o755)
        os.rename(draft, target)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not target.is_dir():
            raise
