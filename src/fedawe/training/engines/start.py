"""How this package starts another process: PyTorch is loaded, one thread is used, and it ends with its parent."""

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.multiprocessing as mp

from fedawe.training.engines.memory import keep_freed_memory

PRELOADED = ["numpy", "torch", "fedawe.training.engines"]


def context() -> Any:
    """The multiprocessing context that creates processes, pipes and shared numbers.

    On Linux a process is forked from a server that has loaded PyTorch and has no other thread, so that it is ready at
    once; a fork of this process could inherit a lock of a thread pool. Elsewhere every process loads PyTorch itself.
    """
    if not sys.platform.startswith("linux"):
        return mp.get_context("spawn")
    found = mp.get_context("forkserver")
    found.set_forkserver_preload(PRELOADED)
    return found


def start(target: Callable[..., None], *arguments: Any) -> Any:
    """A process that calls target(*arguments) and ends with this process at the latest.

    It ignores Ctrl-C, which reaches every process of a terminal: this process handles it and ends the others. It does
    not run the script that started this process, so that a script needs no `__main__` guard.
    """
    process = context().Process(target=_begin, args=(target, *arguments), daemon=True)
    with _without_main_module(), _without_interrupts():
        process.start()
    return process


def _begin(target: Callable[..., None], *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    torch.set_num_threads(1)
    keep_freed_memory()
    target(*arguments)


def _end_with_parent() -> None:
    """End this process with its parent: otherwise it might write into runs that a later command continues."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Hide the main script from a new process; what the process needs of it is sent by value."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C while a process is started, which inherits the block; here it is delivered afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
