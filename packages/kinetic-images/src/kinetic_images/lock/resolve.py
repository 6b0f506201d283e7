"""Resolve a lock: uv chooses the packages; hashes, extras and the project's own lock are checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from packaging.markers import default_environment
from packaging.requirements import Requirement as Parsed
from packaging.utils import canonicalize_name

from kinetic_images.credentials import without_secrets
from kinetic_images.dependencies import Dependencies
from kinetic_images.errors import DependencyError, InstallError
from kinetic_images.lock.packages import Lock, LockedPackage
from kinetic_images.lock.project_locks import Pins, pins_of, sha256_of
from kinetic_images.lock.pylock import read_pylock
from kinetic_images.lock.request import LockRequest, requirement_name
from kinetic_images.lock.uv_input import write_input
from kinetic_images.uv import Uv
from kinetic_payload.files.private import write_private
from kinetic_payload.http.session import origin

_URL: Final = re.compile(r"https?://[^\s'\"`()<>]+")
_INDEX_REFUSED: Final = re.compile(r"\b(401 Unauthorized|403 Forbidden)\b")
_INDEX_AWAY: Final = re.compile(
    r"error sending request|dns error|tcp connect error|operation timed out", re.IGNORECASE
)
_LOGIN_HINT: Final = (
    "Check the user and the password in the index's URL, in UV_INDEX_NAME_USERNAME and UV_INDEX_NAME_PASSWORD, "
    "or in ~/.netrc; for Artifact Registry run: gcloud auth application-default login"
)
_AWAY_HINT: Final = (
    "Check the address of the index, the network, and a VPN or proxy. Then call again."
)


_OUTPUT: Final = "pylock.toml"
_NO_EXTRA: Final = re.compile(
    r"^warning: The package `(\S+?)[ =<>!~@`].* extra named `([^`]+)`", re.M
)
_UNREAD: Final = re.compile(
    r"Failed to parse `[^`]*` during settings discovery:\n(?:[ \t].*\n?)*", re.M
)
"""What uv prints about a settings file that it ignores."""
_NO_WHEEL: Final = re.compile(
    r"Wheels are required for `([\w.-]+)`"
    r"|Building source distributions for `([\w.-]+)` is disabled"
    r"|Building source distributions is (disabled)"
)
"""What uv prints about packages that it may not build."""
_ANY: Final = ":all:"
"""Stands for packages that uv does not name."""
_NIGHTLY: Final = "libtpu-nightly"
_NIGHTLY_PAGE: Final = "https://storage.googleapis.com/jax-releases/libtpu_releases.html"
"""Where `jax[tpu]` before 0.5.2 finds its `libtpu-nightly`, which is on no index: the page that JAX's installation
instructions name (https://github.com/jax-ml/jax/blob/jax-v0.4.30/docs/installation.md).
"""
_MOST_RUNS: Final = 16
"""The most runs of uv that each name a further package without a wheel."""


def resolve(
    request: LockRequest, uv: Uv, scratch: Path, variables: Mapping[str, str] | None = None
) -> Lock:
    """Choose the exact packages for *request*; *scratch* is an empty private folder.

    *variables* are added to the environment of uv.

    For a target, wheels are preferred: a version without a wheel is chosen only if no other one fits.

    Raises:
        DependencyError: A hash, an extra or the project's lock does not fit.
        InstallError: uv failed; the message contains its output and the lines to which it refers.
    """
    dependencies = request.dependencies
    _refuse_unread_settings(dependencies, uv)
    pins = None
    if request.locked is not None:
        here = {name: str(value) for name, value in default_environment().items()}
        markers = request.target.markers() if request.target else here
        pins = pins_of(request.locked, dependencies, request.target, markers, uv)
    _refuse_missing_hashes(request.declared)
    work = _Resolution(request, uv, scratch, pins, variables or {})
    try:
        packages = work.packages([*request.additions, *request.preferences])
        return Lock(packages, tuple(work.notes))
    except InstallError as error:
        named = [
            text
            for text in request.preferences
            if re.search(rf"(?<![\w./-]){re.escape(requirement_name(text))}(?![\w-])", error.output)
        ]
        if not named:
            raise
    loose = [without_version(text) if text in named else text for text in request.preferences]
    work.notes.extend(
        f"Another requirement does not fit the preferred version of {requirement_name(text)}; another one was chosen."
        for text in named
    )
    return Lock(work.packages([*request.additions, *loose]), tuple(work.notes))


@dataclass(frozen=True)
class _Resolution:
    """The resolution of one request, which may take several runs of uv."""

    request: LockRequest
    uv: Uv
    scratch: Path
    pins: Pins | None
    variables: Mapping[str, str]
    built: dict[str, None] = field(default_factory=dict)
    """Names of packages that have no usable wheel, so that they must be built."""
    pages: list[str] = field(default_factory=list)
    """Pages of packages that no requirement names."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the user."""

    def packages(self, additions: list[str]) -> tuple[LockedPackage, ...]:
        """Return the packages for the project's requirements and the *additions*."""
        own = [f"{name} @ {path.as_uri()}" for name, path in self.request.own.items()]
        if not self.request.dependencies.requires_hashes:
            return self._checked(self._compiled([*own, *additions]))
        # There are no hashes for the additions, so they are resolved separately.
        limits = [line.line for line in self.request.replaced if line.specifier and not line.url]
        asked = self._checked(self._compiled([], constraints=limits), all_hashed=True)
        pins = [package.requirement for package in asked]
        more = self._compiled([*own, *additions], asked=False, constraints=pins)
        self._checked(more)
        names = {package.name for package in asked}
        return tuple(sorted([*asked, *(package for package in more if package.name not in names)]))

    def _compiled(
        self, additions: list[str], *, asked: bool = True, constraints: Iterable[str] = ()
    ) -> tuple[LockedPackage, ...]:
        if self.request.target is None:
            return self._run(additions, asked, constraints, [])
        while True:
            # uv builds no package for its metadata, except those that must be built.
            exceptions = (word for name in self.built for word in ("--no-binary", name))
            wheels_only = [] if _ANY in self.built else ["--only-binary", _ANY, *exceptions]
            try:
                return self._run(additions, asked, constraints, wheels_only)
            except InstallError as error:
                # uv names one or a few of them at a time. Wheels stay required for all others.
                matches = _NO_WHEEL.finditer(error.output)
                names = (match[1] or match[2] for match in matches)
                found = dict.fromkeys(canonicalize_name(name) if name else _ANY for name in names)
                if _ANY in self.built or found.keys() <= self.built.keys():
                    raise
                if len(self.built) >= _MOST_RUNS:
                    found = {_ANY: None}
                self.built.update(found)

    def _run(
        self, additions: list[str], asked: bool, constraints: Iterable[str], more: list[str]
    ) -> tuple[LockedPackage, ...]:
        dependencies = self.request.dependencies
        own = [f"{name} @ {path.as_uri()}" for name, path in self.request.fallback.items()]
        given = write_input(
            self.scratch,
            dependencies,
            asked=asked,
            additions=additions,
            constraints=[*own, *constraints, *(self.pins.constraints if self.pins else ())],
            overrides=self.pins.overrides if self.pins else (),
        )
        output = self.scratch / _OUTPUT
        output.unlink(missing_ok=True)  # uv would prefer the versions in it.
        if self.request.preferred:
            rows = (
                f'[[packages]]\nname = "{name}"\nversion = "{version}"'
                for name, version in sorted(self.request.preferred.items())
            )
            write_private(
                output, "\n".join(['lock-version = "1.0"\ncreated-by = "kinetic"', *rows]).encode()
            )
        target = self.request.target
        where = (
            ["--python-version", target.python, "--python-platform", target.platform]
            if target
            else ["--python", self.request.interpreter, "--python-version", self.request.python]
        )
        command = ["pip", "compile", "--format", _OUTPUT, "-o", _OUTPUT, "--no-universal"]
        command += [*where, *more]
        command += (f"--find-links={page}" for page in self.pages)
        command += given.arguments
        try:
            printed = self.uv.run(
                *command, folder=self.scratch, project=given.project, more=self.variables
            )
        except InstallError as error:
            options = {option.name for option in dependencies.options}
            closed = "--no-index" in options or any(dependencies.settings.values("no-index"))
            if _NIGHTLY in error.output and not self.pages and not closed:
                self.pages.append(_NIGHTLY_PAGE)
                self.notes.append(
                    f"{_NIGHTLY} is on no index; it is taken from {_NIGHTLY_PAGE}, as JAX advises."
                )
                return self._run(additions, asked, constraints, more)
            # Not as the cause: its text is in the message.
            raise explained(error, self.request.declared, "could not be resolved") from None
        _refuse_unknown_extras(printed, self.request.declared if asked else None, additions)
        return read_pylock(output.read_text(), str(output), target, allowed=self._allowed())

    def _allowed(self) -> dict[str, frozenset[str]]:
        """Return the digests that the files of packages may have, by name."""
        allowed = dict(self.pins.allowed) if self.pins else {}
        for line in self.request.declared.requirements:
            if line.hashes:
                wanted = frozenset(sha256_of(line))
                allowed[line.name] = wanted & allowed.get(line.name, wanted)
        return allowed

    def _checked(
        self, packages: tuple[LockedPackage, ...], *, all_hashed: bool = False
    ) -> tuple[LockedPackage, ...]:
        """Return *packages* after a check of their digests."""
        dependencies, allowed = self.request.declared, self._allowed()
        lines = {line.name: line for line in dependencies.requirements}
        for package in packages:
            if not package.file:
                continue  # The commit of a repository is its digest.
            line = lines.get(package.name)
            place = dependencies.shown(line.place) if line else str(dependencies.source)
            wanted = allowed.get(package.name)
            if wanted is not None and package.sha256 not in wanted:
                if self.pins and not (
                    line and line.hashes and package.sha256 not in sha256_of(line)
                ):
                    lock = self.pins.lock
                    place = lock.place(package.name) or str(lock.path)
                raise DependencyError(
                    f"{place}: the SHA-256 of {package.file} is {package.sha256}, which is not among the "
                    "hashes there.",
                    hint="Check where the file comes from. If it is right, write its hash there.",
                )
            if wanted is None and all_hashed:
                raise DependencyError(
                    f"{place}: --require-hashes is set, and there is no hash of "
                    f"{package.name}=={package.version}, which another requirement needs.",
                    hint="Write all packages with hashes: uv pip compile --generate-hashes",
                )
        return packages


def explained(error: InstallError, dependencies: Dependencies, what: str) -> InstallError:
    """Return *error* with the lines of the user's files to which uv's output refers."""
    named = dependencies.named_in(error.output)
    source = f" of {dependencies.source}" if dependencies.source else ""
    # Leave out uv's line about the Python that it used: that folder is gone by now.
    output = re.sub(r"^Using .* environment at: .*\n", "", error.output, flags=re.MULTILINE)
    summary, hint = index_failure(output, dependencies)
    message = f"{summary}The dependencies{source} {what}. Output of uv:\n{output}"
    if named:
        message += "\nIt refers to:" + "".join(
            f"\n  {place}: {without_secrets(line)}" for place, line in named
        )
    result = InstallError(message, hint=hint)
    result.output = output
    result.killed = error.killed
    result.places = tuple(place for place, _ in named)
    return result


def _refuse_missing_hashes(dependencies: Dependencies) -> None:
    for line in dependencies.requirements:
        if line.hashes and not any(sha256_of(line)):
            raise DependencyError(
                f"{dependencies.shown(line.place)}: {line.name} has hashes, but no SHA-256.",
                hint="Kinetic compares SHA-256 digests only. Write: --hash=sha256:DIGEST",
            )
        is_exact = line.url is not None or re.fullmatch(r"===?[^,*]+", line.specifier)
        if dependencies.requires_hashes and not (line.hashes and is_exact):
            what = "no exact version" if line.hashes else "no hash"
            raise DependencyError(
                f"{dependencies.shown(line.place)}: --require-hashes is set, and {line.name} has {what}.",
                hint=f"Write: {line.name}==VERSION --hash=sha256:DIGEST",
            )


def _refuse_unread_settings(dependencies: Dependencies, uv: Uv) -> None:
    """Refuse settings that uv ignores, because a private package must not be taken from a public index.

    uv only warns about a `pyproject.toml` with a setting that it does not know, and then ignores all of them.
    """
    if not dependencies.settings.tables or dependencies.folder is None:
        return
    try:
        printed = uv.run("cache", "dir", project=dependencies.folder)
    except InstallError as error:
        if error.killed:
            raise
        raise DependencyError(
            f"uv cannot read its settings for {dependencies.folder}:\n{error.output}",
            hint="Correct the setting, or install a uv that knows it: pip install --upgrade uv",
        ) from None
    found = _UNREAD.search(printed)
    if found is not None:
        what = found[0].partition(", expected one of")[0]
        raise DependencyError(
            f"uv does not understand its settings, and would ignore all of them. {what}",
            hint="Correct the setting, or install a uv that knows it: pip install --upgrade uv",
        )


def _refuse_unknown_extras(
    printed: str, declared: Dependencies | None, additions: Iterable[str]
) -> None:
    added = {(requirement_name(text), extra) for text in additions for extra in Parsed(text).extras}
    for found in _NO_EXTRA.finditer(printed):
        name, extra = canonicalize_name(found[1]), canonicalize_name(found[2])
        lines = [line for line in (declared.requirements if declared else ()) if line.name == name]
        if (name, extra) in added or any(extra in line.extras for line in lines):
            place = f"{declared.shown(lines[0].place)}: " if declared and lines else ""
            raise DependencyError(
                f"{place}{name} has no extra named {extra!r} in the version that was chosen.",
                hint="Correct the extra, or name a version that has it.",
            )


def without_version(text: str) -> str:
    """Return the requirement *text* without its version, with its extras."""
    parsed = Parsed(text)
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    return f"{parsed.name}{extras}"


def index_failure(output: str, dependencies: Dependencies) -> tuple[str, str]:
    """Return a sentence on an index that refused a login or did not respond, by *output* of uv, and a hint.

    The sentence, which ends with a blank, has the index without credentials, and the places that name it. It is empty
    if *output* describes another failure.
    """
    refused = _INDEX_REFUSED.search(output)
    seen = [without_secrets(url).rstrip(".,:;") for url in _URL.findall(output)]
    if not seen or (refused is None and not _INDEX_AWAY.search(output)):
        return "", "Correct the problem and call again."
    origins = {*map(origin, seen)}
    named = [index for index in dependencies.indexes if origin(index.address) in origins]
    index = without_secrets(named[0].address) if named else "/".join([*seen[0].split("/")[:3], ""])
    where = f" ({', '.join(dict.fromkeys(each.named_by for each in named))})" if named else ""
    if refused is not None:
        lead = f"The package index {index}{where} does not accept the login: {refused[1]}. "
        return lead, _LOGIN_HINT
    return f"The package index {index}{where} cannot be reached. ", _AWAY_HINT
