"""Group statistics across real processes: two ranks share every group, and normalise it before or after gathering.

The processes meet through a file, so no port can be taken and no network is needed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, multiprocessing

from labsrc import advantages, checks

# A rank that never comes must not leave the others waiting for half an hour, torch's default.
TIMEOUT = timedelta(seconds=120)
LOOPBACK = {"linux": "lo", "darwin": "lo0"}


@dataclass(frozen=True)
class AcrossRanks:
    """Advantages (P, G) of groups that lie on several ranks, side by side in the order of the ranks."""

    per_rank: Tensor  # each rank normalised its own share
    gathered: Tensor  # each rank gathered the group, normalised it, and kept its own share
    processes: list[int]  # the ranks that answered


def gather_then_standardize(local: Tensor) -> Tensor:
    """This rank's share (P, G/R) of the advantages of whole groups; every rank of the process group must call it.

    local: (P, G/R) rewards, one shape on all ranks. Raises ValueError as `advantages.standardized` does.
    """
    shares = [torch.empty_like(local) for _ in range(distributed.get_world_size())]
    distributed.all_gather(shares, local.contiguous())
    whole = advantages.standardized(torch.cat(shares, -1))
    return whole.chunk(len(shares), -1)[distributed.get_rank()]


def standardize_across_processes(rewards: Any, *, ranks: int = 2) -> AcrossRanks:
    """Start `ranks` processes, give each its share of every group, and return what they computed both ways.

    rewards: (P, G), G a multiple of ranks, each share at least 2. Raises ValueError for another shape, and
    RuntimeError where torch was built without torch.distributed.
    """
    rewards = checks.finite("rewards", rewards)
    ranks = checks.integer_at_least("ranks", ranks, 2)
    if rewards.dim() != 2 or rewards.shape[1] % ranks or rewards.shape[1] < 2 * ranks:
        wanted = f"(P, G) with G a multiple of the {ranks} ranks and at least {2 * ranks}"
        raise ValueError(f"rewards must be {wanted}; got shape {tuple(rewards.shape)}")
    if not distributed.is_available():
        raise RuntimeError("this torch was built without torch.distributed")
    with tempfile.TemporaryDirectory() as folder:
        shares = [share.tolist() for share in rewards.chunk(ranks, -1)]
        # "spawn" is the one way of starting that every system has.
        multiprocessing.start_processes(_one_rank, args=(shares, folder), nprocs=ranks, start_method="spawn")
        answers = [torch.load(_answer(folder, rank), weights_only=True) for rank in range(ranks)]
    return AcrossRanks(
        per_rank=torch.cat([answer["per_rank"] for answer in answers], -1),
        gathered=torch.cat([answer["gathered"] for answer in answers], -1),
        processes=[answer["rank"] for answer in answers],
    )


def _answer(folder: str, rank: int) -> Path:
    return Path(folder) / f"rank{rank}.pt"


def _one_rank(rank: int, shares: Sequence[list[list[float]]], folder: str) -> None:
    """What runs in each process."""
    if sys.platform in LOOPBACK:
        # A machine whose own name resolves to nothing has this interface all the same.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
    torch.set_num_threads(1)
    store = distributed.FileStore(str(Path(folder) / "store"), len(shares))
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=len(shares), timeout=TIMEOUT)
    try:
        local = torch.tensor(shares[rank], dtype=torch.float64)
        answer = {"rank": distributed.get_rank(), "per_rank": advantages.standardized(local)}
        torch.save(answer | {"gathered": gather_then_standardize(local)}, _answer(folder, rank))
        distributed.barrier()
    finally:
        distributed.destroy_process_group()
