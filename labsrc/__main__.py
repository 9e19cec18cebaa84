"""The command line: `python -m labsrc grpo`, `dpo` and the other methods, `verify` for their records, `replay`."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from labsrc.toylm import records, replay, training, verify
from labsrc.toylm.settings import StartSettings, TrainingSettings
from labsrc.toylm.tasks import Addition, FirstToken, LengthBonus
from labsrc.toylm.trainer import Trainer

METHODS = {
    "grpo": "sample groups, standardise their rewards, clip the ratios, β·k3 in the loss",
    "rloo": "leave-one-out baseline, a completion is one action, KL in the reward",
    "reinforce": "the batch's mean reward as baseline, KL in the reward",
    "ppo": "a critic judges every token, KL in the reward of each token",
    "dpo": "two fixed preference pairs: no sampling, no reward while it trains",
}
TASKS: dict[str, Callable] = {"first-token": FirstToken, "addition": Addition, "length-bonus": LengthBonus}

DESCRIPTION = """\
Train the toy language model and look at what happened.

Without options every method runs a small experiment: a freshly drawn decoder, prompt [1, 3], completions of two
tokens, reward 1 when the first token is 6. It takes less than a second on one core. Nothing is written unless you ask.

  python -m labsrc grpo                              one run, a line a step
  python -m labsrc grpo --group-size 4 --beta 0.5    the same with other settings
  python -m labsrc grpo --record run.json            and a record of every token, reward, advantage and loss
  python -m labsrc verify run.json                   recompute them from the record and say what disagrees
  python -m labsrc grpo --checkpoint run.ckpt        stop it whenever you like; the same command goes on
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 for success, 1 for a disagreement, 2 for arguments that cannot be used, 130 when stopped."""
    options = _parser().parse_args(arguments)
    # A model this small is faster on one core than on many.
    torch.set_num_threads(options.threads)
    try:
        return options.run(options)
    except (ValueError, OSError) as error:
        print(f"python -m labsrc {options.command}: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m labsrc", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for method, text in METHODS.items():
        _add_method(commands, method, text)
    check = commands.add_parser("verify", help="recompute rewards, advantages and losses of a record")
    check.add_argument("file", type=Path, help="a record written with --record")
    check.add_argument("--rerun", action="store_true", help="run its settings again and compare every number")
    check.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    check.set_defaults(run=_verify)
    recorded = commands.add_parser("replay", help="train the grid of runs that the lab of that name replays in a page")
    recorded.add_argument("file", type=Path, help="the script to write: book/_static/labs/replay_runs.js")
    recorded.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    recorded.set_defaults(run=_replay)
    return parser


def _add_method(commands: argparse._SubParsersAction, method: str, text: str) -> None:
    default = records.SETTINGS[method]()
    command = commands.add_parser(
        method,
        help=text,
        description=f"{method}: {text}.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = command.add_argument
    add("--steps", type=int, default=default.steps, help="groups sampled, or optimiser steps of dpo")
    add("--lr", type=float, default=default.lr, help="learning rate")
    add("--optimizer", choices=["sgd", "adam"], default=default.optimizer, help="how a gradient becomes a step")
    add("--beta", type=float, default=default.beta, help="weight of the KL to the reference, in reward per nat")
    add("--seed", type=int, default=default.seed, help="seed of prompts and completions")
    if method != "dpo":
        add("--task", choices=list(TASKS), default="first-token", help="prompts and reward; addition starts supervised")
        add("--group-size", type=int, default=default.group_size, help="completions of one prompt, G")
        add("--prompts", type=int, default=default.prompts_per_step, help="prompts a step, P")
        add("--inner-updates", type=int, default=default.inner_updates, help="optimiser steps on one group")
        add("--temperature", type=float, default=default.temperature, help="logits are divided by it before sampling")
        add("--loss", default=default.loss, help="a loss of labsrc.grpo: grpo, dr_grpo, dapo, gspo, …")
        add("--advantage", default=default.advantage, help="a function of labsrc.advantages")
        add("--clip-low", type=float, help="clip radius below a ratio of 1; the loss's own if not given")
        add("--clip-high", type=float, help="clip radius above a ratio of 1; the loss's own if not given")
    add("--record", type=Path, metavar="FILE", help="write a JSON record of the run here")
    add("--checkpoint", type=Path, metavar="FILE", help="save the state here after every step, and go on from it")
    add("--threads", type=int, default=1, help="threads torch may use")
    command.set_defaults(run=_train)


def _settings(options: argparse.Namespace) -> TrainingSettings:
    chosen = {name: getattr(options, name) for name in ("steps", "lr", "optimizer", "beta", "seed")}
    if options.command != "dpo":
        names = ("group_size", "inner_updates", "temperature", "loss", "advantage", "clip_low", "clip_high")
        chosen |= {name: getattr(options, name) for name in names}
        chosen |= {"task": TASKS[options.task](), "prompts_per_step": options.prompts}
        chosen["start"] = StartSettings() if options.task == "addition" else None
    return records.SETTINGS[options.command](**chosen)


def _train(options: argparse.Namespace) -> int:
    settings = _settings(options)
    for path in (options.record, options.checkpoint):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"FILE must be in a folder that exists; got {str(path)!r}")
    progress = Progress(settings.steps)
    status, message = 0, None
    try:
        with progress.stopping_between_steps():
            training.train(settings, save_to=options.checkpoint, observe=progress.show)
    except KeyboardInterrupt:
        status, message = 130, "stopped by the user"
    progress.close()
    if progress.trainer is not None:
        record = training.record_of(progress.trainer, exit_status=status, error=message)
        _print_summary(record)
        if options.record is not None:
            record.save(options.record)
            print(f"record written to {options.record}")
    return status


class Progress:
    """A bar on a terminal, a line a step elsewhere."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.trainer: Trainer | None = None
        self.bar = sys.stderr.isatty()
        self.stopped = False

    @contextlib.contextmanager
    def stopping_between_steps(self) -> Iterator[None]:
        """Ctrl-C ends the run after the step it is in, so that what is recorded is whole; a second one ends at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may say what a signal does
            return
        usual = signal.getsignal(signal.SIGINT)

        def stop(*_: object) -> None:
            self.stopped = True
            signal.signal(signal.SIGINT, usual)

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, usual)

    def show(self, trainer: Trainer) -> None:
        """Show where the run is; called before the first step and after each one."""
        self.trainer = trainer
        if trainer.monitors:
            self._print(trainer)
        if self.stopped:
            raise KeyboardInterrupt

    def _print(self, trainer: Trainer) -> None:
        numbers = {name: trainer.monitors[-1].get(name) for name in ("reward_mean", "margin", "loss")}
        text = "  ".join(f"{name} {value:.4f}" for name, value in numbers.items() if value is not None)
        if self.bar:
            filled = 30 * trainer.steps_done // self.steps
            bar = "█" * filled + "·" * (30 - filled)
            print(f"\r{bar} {trainer.steps_done}/{self.steps}  {text}\033[K", end="", file=sys.stderr, flush=True)
        else:
            print(f"step {trainer.steps_done:>4}/{self.steps}  {text}", flush=True)

    def close(self) -> None:
        """End the bar's line."""
        if self.bar:
            print(file=sys.stderr)


def _print_summary(record: records.Record) -> None:
    names = {"expected_reward": "expected reward, exact", "greedy_reward": "reward of greedy decoding"}
    names |= {"sequence_kl": "KL to the reference, nats, exact"}
    for name, text in names.items():
        if record.before[name] is not None:
            print(f"{text:<34}{record.before[name]:.4f} → {record.after[name]:.4f}")
    print("cost: " + ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in record.cost.items()))


def _verify(options: argparse.Namespace) -> int:
    record = records.load(options.file)
    found = (verify.verify_by_rerun if options.rerun else verify.verify)(record)
    for note in found.notes:
        print(f"note: {note}")
    for line in found.disagreements:
        print(line)
    verdict = "all agree" if found.agrees else f"{len(found.disagreements)} disagree"
    print(f"{options.file}: {found.checked} numbers recomputed, {verdict}")
    return 0 if found.agrees else 1


def _replay(options: argparse.Namespace) -> int:
    print(f"{replay.write(options.file)} runs written to {options.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
