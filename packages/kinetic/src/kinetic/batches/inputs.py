"""The inputs of a batch: arguments of each call, pickled into a few objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final, Literal

from kinetic.errors import InvalidRequestError, KineticError
from kinetic.submit.functions import check_arguments
from kinetic_payload.layout import JobObjects
from kinetic_payload.limits import MOST_INPUTS
from kinetic_payload.records.batch import InputPack
from kinetic_payload.stores.store import ABSENT, Store
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic_payload.calls.dump import DumpedCall

InputMode = Literal["auto", "single", "args", "kwargs"]
Call = tuple[tuple[Any, ...], dict[str, Any]]
_PACK_SIZE: Final = 8 << 20
"""Bytes of pickles after which an object is full."""
_IN_MEMORY: Final = 256 << 10
"""Bytes of an object up to which it is kept in memory until it is uploaded."""
_PACK_COUNT: Final = 2000
"""Inputs after which an object is full: each worker reads the sizes and digests of all of them."""


class Inputs:
    """The inputs of one batch, in objects that are not uploaded yet. `close` it at the end."""

    def __init__(
        self,
        inputs: Iterable[Any],
        mode: InputMode,
        check: Callable[[tuple[Any, ...], dict[str, Any]], object],
    ) -> None:
        """Take *inputs*, which are consumed once, by `pack`; *check* raises an error for wrong arguments.

        Raises:
            InvalidRequestError: They cannot be inputs, or there are none.
        """
        if isinstance(inputs, str | bytes | Mapping) or not isinstance(inputs, Iterable):
            raise InvalidRequestError(
                f"The inputs of a batch are a {type(inputs).__name__}; a list of inputs was expected.",
                hint="Write one input for each call: [0.1, 0.01], or [{'lr': 0.1}, {'lr': 0.01}].",
            )
        sized: Any = inputs
        try:
            count = len(sized)
        except TypeError:  # `tqdm` of a generator has a `__len__` that fails.
            count = None
        if count == 0:
            raise InvalidRequestError("A batch needs at least one input, and there is none.")
        self.count = 0
        """The number of inputs that were consumed."""
        self.failed: dict[int, Exception] = {}
        """By index, those that cannot be submitted. An iterator cannot be read again, so the others are."""
        self.packs: list[InputPack] = []
        self.call_data = 0
        """How many `Data` the call itself has; those of inputs come after them."""
        self.hub_data: tuple[str, ...] = ()
        """The keys of those of the Hub among them."""
        self._files: list[IO[bytes]] = []
        self._closing = ExitStack()
        self._inputs = inputs
        self._mode = mode
        self._check = check
        self._strict = count is not None
        """Whether a wrong input is an error: of a sequence, all can be submitted again."""

    def close(self) -> None:
        """Remove temporary files."""
        self._closing.close()

    def pack(self, call: DumpedCall) -> None:
        """Consume the inputs, and pickle them as further arguments of *call*.

        Raises:
            InvalidRequestError: There are none, or one of a sequence does not fit; the message has its index.
            PayloadError: One of a sequence cannot be pickled; the message has its index.
        """
        heads: list[tuple[int, str, tuple[str, ...]]] = []
        self.call_data = len(call.data)
        self.hub_data = tuple(found.key for found in call.data if found.value.is_hf)
        for pickled, keys in self._pickles(call):
            if not heads:
                # In memory while it is small; the disk takes the rest.
                spool: Any = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - `close` closes it
                self._files.append(self._closing.enter_context(spool))
            self._files[-1].write(pickled)
            heads.append((len(pickled), sha256(pickled).hexdigest(), keys))
            self.count += 1
            if self.count > MOST_INPUTS:
                raise InvalidRequestError(
                    f"A batch has at most {MOST_INPUTS:,} inputs.",
                    hint="Give several of them to one call, as a list that the function goes through.",
                )
            if len(heads) == _PACK_COUNT or self._files[-1].tell() >= _PACK_SIZE:
                self._finish(heads)
                heads = []
        if heads:
            self._finish(heads)
        if len(self.failed) == self.count:
            raise next(
                iter(self.failed.values()), InvalidRequestError("The iterator gave no input.")
            )

    def _pickles(self, call: DumpedCall) -> Iterator[tuple[bytes, tuple[str, ...]]]:
        iterator = iter(self._inputs)
        index = 0
        while True:
            try:
                given = next(iterator)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001 - user code; the inputs before it are good
                self.failed[index] = error
                yield b"", ()
                return  # A generator that raised has ended.
            try:
                args, kwargs = arguments_of(given, self._mode)
                self._check(args, kwargs)
                pickled = call.dump_input(f"input {index}", args, kwargs)
            except Exception as error:
                if self._strict:
                    # With the index of the input in its message.
                    if not isinstance(error, KineticError):
                        raise InvalidRequestError(f"Input {index}: {error}") from error
                    if f"input {index}" in error.message:
                        raise
                    raise type(error)(f"Input {index}: {error.message}", hint=error.hint) from error
                self.failed[index] = error
                pickled = b"", ()
            yield pickled
            index += 1

    def _finish(self, heads: list[tuple[int, str, tuple[str, ...]]]) -> None:
        """Complete the last object: put the sizes and digests of its pickles before them."""
        line = json.dumps(heads, separators=(",", ":")).encode() + b"\n"
        first = self.count - len(heads)
        digest = sha256(line).hexdigest()
        self.packs.append(InputPack(first=first, count=len(heads), head=len(line), digest=digest))
        bodies = self._files[-1]
        bodies.seek(0)
        whole: Any = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - `close` closes it
        self._files[-1] = self._closing.enter_context(whole)
        whole.write(line)
        while chunk := bodies.read(1 << 20):
            whole.write(chunk)
        bodies.close()

    def upload(
        self,
        store: Store,
        group: JobObjects,
        writing: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Write the objects of the inputs; *writing* notes each name."""

        def send(number: int) -> None:
            name, source = group.inputs(number), self._files[number]
            source.seek(0)
            with writing(name), store.writer(name, if_generation=ABSENT) as stream:
                while chunk := source.read(1 << 20):
                    stream.write(chunk)

        parallel_map(send, range(len(self._files)), threads=store.concurrency)


def arguments_of(given: Any, mode: InputMode) -> Call:
    """Return the arguments that the input *given* stands for.

    With `auto`, a dict whose keys are identifiers gives keyword arguments, a list or tuple positional ones, and
    anything else one argument.

    Raises:
        InvalidRequestError: The input does not fit the mode.
    """
    if mode == "auto":
        if isinstance(given, dict) and all(
            isinstance(key, str) and key.isidentifier() for key in given
        ):
            mode = "kwargs"
        else:
            mode = "args" if isinstance(given, list | tuple) else "single"
    if mode == "kwargs":
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise InvalidRequestError(
                f"it is a {type(given).__name__}; input_mode='kwargs' needs a dict of arguments."
            )
        return (), dict(given)
    if mode == "args":
        if not isinstance(given, list | tuple):
            raise InvalidRequestError(
                f"it is a {type(given).__name__}; input_mode='args' needs a list or tuple of arguments."
            )
        return tuple(given), {}
    return (given,), {}


def checker_of(
    function: Callable[..., Any], first: tuple[Any, ...], common: Mapping[str, Any]
) -> Callable[[tuple[Any, ...], dict[str, Any]], object]:
    """Return a function that raises `TypeError` for arguments that do not fit *function*, after *first*."""

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        check_arguments(function, (*first, *args), {**common, **kwargs})

    return check
