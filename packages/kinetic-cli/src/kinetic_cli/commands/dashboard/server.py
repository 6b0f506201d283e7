"""The server of `kinetic dashboard`: who may ask, what is read for each page, and what is kept between two looks."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from hmac import compare_digest
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import click
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from kinetic.backends.registry import CLUSTER, LOCAL, entry_of
from kinetic.batches.handle import batch_in
from kinetic.errors import JobNotFoundError, KineticError, SignatureError
from kinetic.jobs.discover import find_job, find_report, live_report
from kinetic.jobs.logs import log_lines
from kinetic.jobs.report import clean_log, cleaner_of
from kinetic.settings.settings import environment
from kinetic.target import Target, is_in_pod
from kinetic.user_warnings import logged_to
from kinetic_cli.app import App
from kinetic_cli.commands import pool, status
from kinetic_cli.commands.batches import details_of
from kinetic_cli.commands.dashboard import pages
from kinetic_cli.commands.jobs.list import listed_jobs, print_costs
from kinetic_cli.output import Output

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from kinetic.backends.backend import LogLine
    from kinetic.jobs.handle import JobHandle
    from kinetic.settings.settings import Settings
    from kinetic_payload.records.job import JobRecord

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PAUSE: Final = 2.0
"""Seconds between two looks at all jobs, at least; ten times as long as a look takes, so that it costs little."""
_FIRST_LOOK: Final = 0.7
"""Seconds for which a page waits for the first look."""
_LOG_LINES: Final = 1000
_LONGEST_LINE: Final = 4000
_KEY_LINES: Final = 200
"""Lines of a private key, at most."""
_IDLE: Final = 900.0
"""Seconds after which a log that no page asks for is not followed any more; browsers let hidden pages ask once a minute."""
_MOST_KEPT: Final = 64
_FILES: Final = ("htmx.min.js", "page.js")


class Guard:
    """Lets requests pass that come from a page of this server, by their token, Host and Origin."""

    def __init__(self, app: ASGIApp, port: int, token: str, ticket: str) -> None:
        """Take the *token*, with which each path begins, and the *ticket*, which is exchanged for it once."""
        self._app = app
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._token = token
        self._ticket = ticket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        # Browsers name the origin with each POST.
        named = origin is not None or scope["method"] in ("GET", "HEAD")
        own = host in self._hosts and origin in (f"http://{host}", None) and named
        first, _, rest = scope["path"][1:].partition("/")
        text = "Refused. Use the address that `kinetic dashboard` has printed.\n"
        answer: ASGIApp = PlainTextResponse(text, 403)
        if own and compare_digest(first.encode(), self._token.encode()):
            answer, scope = self._app, {**scope, "root_path": f"/{self._token}"}
        elif own and first == "open" and compare_digest(rest.encode(), self._ticket.encode()):
            self._ticket = self._token  # No second time.
            answer = RedirectResponse(f"/{self._token}/", 303)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await answer(scope, receive, send_with_headers)


class _Printed(Output):
    """What a command prints, as HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.html = ""
        self.warnings: list[str] = []

    def line(self, text: str, *, flush: bool = False) -> None:  # noqa: ARG002 - of `Output`
        self.html += f"<p>{pages.text(text)}</p>"

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[object]], **_: object) -> None:
        self.html += pages.table(heads, rows)

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        self.html += pages.facts(pairs)


class _Part(App):
    """An `App` for a part of a page. The terminal of the dashboard shows general warnings."""

    def __init__(self, app: App) -> None:
        self.printed = _Printed()
        super().__init__(self.printed, app.clock)
        self.target = app.target

    def print_warnings(self) -> None:
        pass


class Listing:
    """The jobs of one place, which are looked at in the background while a page asks for them."""

    def __init__(self, app: App, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._ended: dict[str, JobHandle] = {}
        self._lock = Lock()
        self._looks = False
        self._next = 0.0
        self._seen = Event()
        self._counted = False
        self._jobs: list[dict[str, Any]] = []
        self.warnings: list[str] = []

    def jobs(self, until: float) -> tuple[list[dict[str, Any]], bool]:
        """Return the jobs seen *until* then, and whether these are all; begin another look if it is time."""
        self.begin()
        self._seen.wait(max(0, until - time.monotonic()))
        counted = self._counted  # Asked first: then all of them are there.
        return self._jobs, counted

    def begin(self) -> None:
        """Begin another look if it is time."""
        with self._lock:
            if not self._looks and time.monotonic() >= self._next:
                self._looks = True
                Thread(target=self._look_at_all, daemon=True, name="dashboard-jobs").start()

    def look_soon(self) -> None:
        """Look again when a page asks."""
        self._next = 0.0

    def _look_at_all(self) -> None:
        began = time.monotonic()
        failure = ["The jobs could not be listed; the terminal of the dashboard shows why."]
        try:
            if not self._counted:  # The newest jobs are shown before all are counted.
                self._look(pages.PAGE)
                self._seen.set()
            self._look(None)
            self._counted = True
            failure = []
        except KineticError as error:
            failure = [_message_of(error)]
        finally:
            now = time.monotonic()
            with self._lock:
                self.warnings, self._looks = failure or self.warnings, False
                self._next = now + max(_PAUSE, 10 * (now - began))
            self._seen.set()

    def _look(self, limit: int | None) -> None:
        part, warnings = _Part(self._app), list[str]()
        part.ended = self._ended
        with logged_to(warnings.append):
            self._jobs = listed_jobs(part, self._settings, limit=limit)
        self._ended = part.ended
        self.warnings = [*warnings, *part.printed.warnings]


def _cleaner_of(record: JobRecord) -> Callable[[str], str]:
    """Return what removes from a text of a job, or of an input, what its report does not show."""
    return cleaner_of(record, secrets=environment(), home=str(Path.home()))


class Follower:
    """The log of a job as it grows, for the pages that show it."""

    def __init__(self, job: JobHandle) -> None:
        self._job = job
        self._clean = _cleaner_of(job._record)
        self._lines: deque[LogLine] = deque(maxlen=_LOG_LINES)
        self._count = 0
        self._lock = Lock()
        self._asked = time.monotonic()
        self.error = ""
        self._thread = Thread(target=self._follow, daemon=True, name="dashboard-log")
        self._thread.start()
        self._thread.join(0.2)  # The log of a job that has ended is then on the page at once.

    @property
    def ended(self) -> bool:
        """Whether no line follows."""
        return not self._thread.is_alive()

    def after(self, count: int, host: int | None) -> tuple[list[LogLine], int]:
        """Return the lines after the first *count*, of *host* or of all, and the number of lines so far."""
        self._asked = time.monotonic()
        with self._lock:
            total, lines = self._count, [*self._lines]
        new = max(0, min(total - count, len(lines)))
        # As one text, and with lines before the new ones: what must not be seen may have several lines.
        cleaned = clean_log(lines[-new - _KEY_LINES :], self._clean)[-new:] if new else []
        return [each for each in cleaned if host in (None, each.host)], total

    def _follow(self) -> None:
        def idle() -> bool:
            return time.monotonic() - self._asked > _IDLE

        record, services = self._job._record, self._job._services
        lines = log_lines(record, services, follow=True, tail=_LOG_LINES, stopped=idle)
        try:
            for line in lines:
                with self._lock:
                    self._lines.append(replace(line, text=line.text[:_LONGEST_LINE]))
                    self._count += 1
            if idle():
                self.error = "Reload the page to follow the log again."
        except KineticError as error:
            self.error = _message_of(error)


def _message_of(error: KineticError) -> str:
    return f"{error.message}\n{error.hint}" if error.hint else error.message


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


class Dashboard:
    """The pages of the dashboard, and its actions."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._settings = app.settings()
        backend = self._settings.backend.value
        self._cluster = Target.in_settings(self._settings).named or is_in_pod(environment())
        self._places = [self._settings]
        if backend is not None:
            self._cluster = not entry_of(backend).on_this_machine
        else:  # Each is looked at by itself: one that cannot be reached keeps no other waiting.
            both = (LOCAL, CLUSTER)[: 1 + self._cluster]
            self._places = [app.settings(backend=each) for each in both]
        self._listings = [Listing(app, each) for each in self._places]
        for listing in self._listings:
            listing.begin()
        self._kept: OrderedDict[str, tuple[JobHandle, list[Follower]]] = OrderedDict()
        self._lock = Lock()

    def routes(self) -> Starlette:
        """Return what answers requests."""
        return Starlette(
            routes=[
                Route("/", self._page("Jobs", self._job_list)),
                Route("/jobs/{id}", self._page("", self._job_page)),
                Route("/jobs/{id}/log", self._job_log),
                Route("/batches/{id}", self._page("", self._batch_page)),
                *([Route("/cluster", self._cluster_page)] if self._cluster else []),
                *([Route("/cluster/{part}", self._cluster_part)] if self._cluster else []),
                Route("/jobs/{id}/{action}", self._act, methods=["POST"]),
                Route("/batches/{id}/{action}", self._act, methods=["POST"]),
                Route("/{name}", self._file),
            ]
        )

    def _found(self, job_id: str) -> tuple[JobHandle, list[Follower]]:
        """Return a job, and what follows its log once a page has asked for it."""
        both = self._kept.get(job_id) or (find_job(job_id, self._settings), [])
        with self._lock:
            self._kept[job_id] = both
            self._kept.move_to_end(job_id)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return both

    def _page(
        self, name: str, build: Callable[[Request], tuple[str, str, str, int]]
    ) -> Callable[[Request], Response]:
        """Return what answers with the page of *name*: to htmx with its live part, if that has changed."""

        def answer(request: Request) -> Response:
            seen, code = request.query_params.get("seen"), 200
            try:
                title, html, rest, every = build(request)
            except KineticError as error:
                html = pages.failure(_message_of(error))
                title, rest, every = "Kinetic", "", 10
                code = 200 if seen else 404
            base = f"{request.scope['root_path']}/"
            asked = {key: value for key, value in request.query_params.items() if key != "seen"}
            address = request.url.path.removeprefix(base) or "./"
            address = f"{address}?{urlencode(asked)}" if asked else address
            part, digest = pages.live(address, html, every)
            if seen == digest:
                return Response(status_code=204)
            if seen is not None:
                return HTMLResponse(part)
            body = f"{pages.navigation(name, cluster=self._cluster)}{part}{rest}"
            return HTMLResponse(pages.document(title, body, base=base), code)

        return answer

    def _job_list(self, request: Request) -> tuple[str, str, str, int]:
        jobs: dict[str, dict[str, Any]] = {}
        warnings: list[str] = []
        all_of_them, until = True, time.monotonic() + _FIRST_LOOK
        for listing in self._listings:
            known, complete = listing.jobs(until)
            # A store that KINETIC_STORE names may be that of both.
            jobs = {**{job["job_id"]: job for job in known}, **jobs}
            all_of_them = all_of_them and complete
            warnings += listing.warnings
        newest = sorted(jobs.values(), key=lambda job: str(job["created_at"]), reverse=True)
        chosen = {key: request.query_params.get(key, "") for key in ("status", "function")}
        page = _number(request, "page") or 0
        html = pages.job_list(newest, chosen, page, counted=all_of_them, warnings=warnings)
        return "Kinetic", html, "", 2

    def _job_page(self, request: Request) -> tuple[str, str, str, int]:
        job_id, at = request.path_params["id"], f"jobs/{request.path_params['id']}"
        job: JobHandle | None = None
        try:
            job, _ = self._found(job_id)
            report = live_report(job)
            if report.status == "NOT_FOUND":
                raise JobNotFoundError(f"{job_id} was cleaned up.")
        except (JobNotFoundError, SignatureError) as error:
            job = None
            with self._lock:
                self._kept.pop(job_id, None)
            report = find_report(job_id, self._settings, lines=_LOG_LINES)
            if isinstance(error, SignatureError):
                report = replace(report, notes=[_message_of(error), *report.notes])
        over = report.status not in ("PENDING", "RUNNING")
        buttons = ""
        if job is not None and not over:
            ask = f"Cancel {job_id}? What it has computed so far is lost."
            buttons += pages.button(f"{at}/cancel", "Cancel", ask)
        if job is not None and job.group_id is None:
            ask = f"Run the call of {job_id} once more, on this machine?"
            buttons += pages.button(f"{at}/replay", "Run again here", ask)
            if over:
                ask = f"Remove {job_id} with its value? Its log and its outputs stay."
                buttons += pages.button(f"{at}/cleanup", "Clean up", ask)
        html = pages.job_page(report, head=f"<p>{buttons}</p>" if buttons else "", dashboard=True)
        log = ""
        if "seen" not in request.query_params:
            host = _number(request, "host")
            hosts = job._record.hosts if job is not None else 1
            lines = pages.log_text(report.log) if job is None else self._new_lines(job_id, 0, host)
            log = pages.log_section("Log", lines or "", hosts=pages.host_links(at, hosts, host))
        return job_id, html, log, 10 if over else 2

    def _new_lines(self, job_id: str, count: int, host: int | None) -> str | None:
        """Return the lines of a log after the first *count* with a request for further ones; None if nothing is new."""
        job, followers = self._found(job_id)
        if not followers or (followers[0].ended and not count):
            followers[:] = [Follower(job)]
        ended = followers[0].ended  # Asked first, so that no line is missed.
        lines, total = followers[0].after(count, host)
        html = pages.log_text(lines, hosts=host is None)
        if ended:
            return html + pages.notices(filter(None, [followers[0].error]))
        if count and not lines and total == count:
            return None
        asked = {"after": total, **({} if host is None else {"host": host})}
        return html + pages.more(f"jobs/{job_id}/log?{urlencode(asked)}")

    def _job_log(self, request: Request) -> Response:
        count, host = _number(request, "after") or 0, _number(request, "host")
        try:
            html = self._new_lines(request.path_params["id"], count, host)
        except KineticError as error:
            html = pages.notices([_message_of(error)])
        return Response(status_code=204) if html is None else HTMLResponse(html)

    def _batch_page(self, request: Request) -> tuple[str, str, str, int]:
        group_id, at = request.path_params["id"], f"batches/{request.path_params['id']}"
        batch = batch_in(group_id, self._settings)
        clean = _cleaner_of(batch._manifest.job_record)
        facts, look = details_of(self._app, batch)
        failed, buttons = sum(len(one["inputs"]) for one in facts["failures"]), ""
        if not look.over:
            left = f"{len(look.left):,} of {len(batch):,} inputs have not ended"
            ask = f"Cancel {group_id}? {left}. Values that are there stay."
            buttons += pages.button(f"{at}/cancel", "Cancel", ask)
        else:
            if failed:
                ask = f"Run {failed:,} inputs of {group_id} again?"
                buttons += pages.button(f"{at}/retry", "Retry what failed", ask)
            ask = f"Remove {group_id} with all of its values? Logs and outputs stay."
            buttons += pages.button(f"{at}/cleanup", "Clean up", ask)
        html = pages.batch_page(facts, batch._manifest, look, f"<p>{buttons}</p>", clean)
        return group_id, html, "", 10 if look.over else 2

    def _act(self, request: Request) -> Response:
        each, action = request.path_params["id"], request.path_params["action"]
        actions: dict[str, tuple[Callable[[], Any], str]]
        try:
            if request.url.path.startswith(f"{request.scope['root_path']}/batches/"):
                batch = batch_in(each, self._settings)
                retry = partial(batch.retry_failed, assume_yes=True)
                actions = {
                    "cancel": (batch.cancel, f"Cancelled {each}."),
                    "retry": (retry, f"{each} runs again."),
                    "cleanup": (batch.cleanup, f"Cleaned up {each}."),
                }
            else:
                job = find_job(each, self._settings)
                actions = {
                    "cancel": (job.cancel, f"Cancelled {each}."),
                    "replay": (job.replay, "Started "),
                    "cleanup": (job.cleanup, f"Cleaned up {each}. Its log is kept."),
                }
            if action not in actions:
                return PlainTextResponse("Not found.\n", 404)
            do, words = actions[action]
            done = do()
        except KineticError as error:
            return HTMLResponse(pages.failure(_message_of(error)))
        for listing in self._listings:
            listing.look_soon()
        new = pages.link(f"jobs/{done.job_id}", done.job_id) if action == "replay" else ""
        return HTMLResponse(f"<p class=done>{pages.text(words)}{new}</p>")

    def _cluster_page(self, request: Request) -> Response:
        base = f"{request.scope['root_path']}/"
        body = f"{pages.navigation('Cluster', cluster=self._cluster)}<main><div>{pages.cluster_parts()}</div></main>"
        return HTMLResponse(pages.document("Kinetic: cluster", body, base=base))

    def _cluster_part(self, request: Request) -> Response:
        part = _Part(self._app)
        parts: dict[str, Callable[[], Any]] = {
            "status": lambda: _printed_by(status.command, part),
            "pools": lambda: _printed_by(pool.list_, part),
            "costs": lambda: print_costs(
                part, listed_jobs(part, self._places[-1], cost=True, limit=pages.PAGE)
            ),
        }
        if (name := request.path_params["part"]) not in parts:
            return PlainTextResponse("Not found.\n", 404)
        try:
            parts[name]()
        except KineticError as error:
            return HTMLResponse(pages.failure(_message_of(error)))
        return HTMLResponse(part.printed.html + pages.notices(part.printed.warnings))

    def _file(self, request: Request) -> Response:
        if (name := request.path_params["name"]) not in _FILES:
            return PlainTextResponse("Not found.\n", 404)
        return FileResponse(Path(__file__).with_name(name))


def _printed_by(command: click.Command, part: App) -> None:
    click.Context(command, obj=part).invoke(command, as_json=False)
