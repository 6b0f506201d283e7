"""Pages about jobs, a job and a batch, as HTML: parts of the dashboard, and the files of `kinetic jobs report --html`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from kinetic_cli.commands.jobs.list import state_of
from kinetic_cli.commands.jobs.top import rows as usage_rows
from kinetic_cli.output import age_text, seconds_text

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine
    from kinetic.batches.states import Look
    from kinetic.jobs.report import Report
    from kinetic_payload.records.batch import GroupManifest

PAGE: Final = 100
"""Jobs on a page of the list."""
_CELLS: Final = 2_000
_SHOWN_INPUTS: Final = 20
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_HTMX: Final = escape(
    '{"includeIndicatorStyles":false,"allowEval":false,"historyCacheSize":0,"selfRequestsOnly":true,"timeout":600000}'
)


def document(title: str, body: str, *, base: str = "") -> str:
    """Return a page: part of the dashboard whose address is *base*, else a file that loads nothing and runs nothing."""
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    head = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    if base:
        head = (
            f'<base href="{base}"><meta name="htmx-config" content="{_HTMX}">'
            '<script src="htmx.min.js" defer></script><script src="page.js" defer></script>'
        )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{head}'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{text(title)}</title><style>{style}</style></head><body>{body}</body></html>\n"
    )


def text(value: object) -> str:
    """Return *value* as text of HTML in one line, an empty one for None; `Html` as it is."""
    from kinetic_payload.printable import printable_line

    if isinstance(value, Html):
        return value
    return "" if value is None else escape(printable_line(str(value)))


def table(heads: Sequence[str], rows: Iterable[Iterable[object]], *, kind: str = "") -> str:
    """Return a table."""
    head = "".join(f"<th>{text(each)}" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{text(cell)}" for cell in row) for row in rows)
    return f'<table class="{kind}">{f"<thead><tr>{head}" if head else ""}<tbody>{body}</table>'


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return names and values, without values that are empty."""
    cells = (
        f"<dt>{text(name)}<dd>{text(value)}" for name, value in pairs if value not in (None, "")
    )
    return f"<dl>{''.join(cells)}</dl>"


def state(name: object) -> Html:
    """Return the name of a state in its colour."""
    return Html(f'<span class="state {text(name)}">{text(name or "unknown")}</span>')


def link(address: str, shown: object) -> Html:
    """Return a link."""
    return Html(f'<a href="{escape(address)}">{text(shown)}</a>')


def notices(texts: Iterable[str]) -> str:
    """Return warnings, each once."""
    return "".join(f"<p class=warning>{text_lines(each)}</p>" for each in dict.fromkeys(texts))


def failure(message: str) -> str:
    """Return the *message* of an error."""
    return f"<p class=error>{text_lines(message)}</p>"


def live(address: str, html: str, every: int) -> tuple[str, str]:
    """Return *html* as the part of a page that asks *address* for a newer one every few seconds, and its digest."""
    digest = sha256(html.encode()).hexdigest()[:16]
    joint = "&" if "?" in address else "?"
    return (
        f'<main id=live hx-get="{escape(f"{address}{joint}seen={digest}")}" '
        f'hx-trigger="every {every}s" hx-swap=outerHTML><div>{html}</div></main>',
        digest,
    )


def navigation(here: str, *, cluster: bool) -> str:
    """Return the head of each page of the dashboard; *here* is the name of the page."""
    pages = {"Jobs": "", "Cluster": "cluster"} if cluster else {"Jobs": ""}
    links = "".join(
        f'<a href="{address or "./"}"{" class=here" * (name == here)}>{name}</a>'
        for name, address in pages.items()
    )
    return (
        f"<header><b>Kinetic</b><nav>{links}</nav></header><div id=said></div>"
        "<p class=lost>The dashboard has ended, or cannot be reached: this page is not up to date.</p>"
    )


def button(address: str, shown: str, question: str) -> str:
    """Return a button that asks *question*, then does what *address* stands for."""
    return (
        f'<button hx-post="{escape(address)}" hx-target="#said" hx-swap=innerHTML hx-disabled-elt=this '
        f'hx-confirm="{text(question)}">{text(shown)}</button>'
    )


def job_list(
    jobs: Sequence[Mapping[str, Any]],
    chosen: Mapping[str, str],
    page: int,
    *,
    counted: bool,
    warnings: Iterable[str],
) -> str:
    """Return the list of jobs, of which *chosen* selects some: `status`, `function`."""
    from urllib.parse import urlencode

    def address(**other: str | None) -> str:
        kept = {key: value for key, value in {**chosen, **other}.items() if value}
        return f"./?{urlencode(kept)}" if kept else "./"

    function, status = chosen.get("function"), chosen.get("status")
    jobs = [job for job in jobs if not function or job["function"] == function]
    counts = Counter(map(_state_of, jobs))
    order = ("RUNNING", "PENDING", "FAILED", "CANCELLED", "SUCCEEDED")
    names = sorted(counts, key=lambda name: order.index(name) if name in order else len(order))
    chips = [(None, "all", len(jobs)), *((name, name.lower(), counts[name]) for name in names)]
    wanted = [job for job in jobs if not status or _state_of(job) == status]
    page = min(page, len(wanted) // PAGE)
    rows = wanted[page * PAGE : (page + 1) * PAGE]
    parts = [notices(warnings), "<p class=chips>"]
    parts += (
        f'<a href="{escape(address(status=name))}" class="chip{" here" * ((name or "") == (status or ""))}">{shown} '
        f"<b>{f'{count:,}' if counted else '…'}</b></a>"
        for name, shown, count in chips
    )
    if function:
        parts.append(
            f'<a class="chip here" href="{escape(address(function=None))}">{text(function)} ×</a>'
        )
    parts.append("</p>")
    if not rows:
        parts.append(f"<p class=empty>{'No jobs.' if counted else 'Looking…'}</p>")
    else:
        heads = ("job", "status", "function", "accelerator", "age", "duration", "backend")
        parts.append(
            table(
                heads,
                (
                    (
                        link(
                            f"{'batches' if job['inputs'] else 'jobs'}/{job['job_id']}",
                            job["job_id"],
                        ),
                        state(_state_of(job)),
                        Html(
                            link(address(function=job["function"]), job["function"])
                            + (f" × {job['inputs']:,}" if job["inputs"] else "")
                        ),
                        job["accelerator"],
                        age_text(job["age_seconds"]),
                        age_text(job["duration_seconds"]),
                        job["cluster"] or job["backend"],
                    )
                    for job in rows
                ),
                kind="jobs",
            )
        )
    steps = [("newer", page - 1), ("older", page + 1)]
    last = (len(wanted) - 1) // PAGE
    pages = [link(address(page=str(to)), shown) for shown, to in steps if 0 <= to <= last]
    return "".join([*parts, f"<p class=chips>{' '.join(pages)}</p>"])


def _state_of(job: Mapping[str, Any]) -> str:
    return state_of(job) or "UNKNOWN"


def job_page(report: Report, *, head: str = "", dashboard: bool = False) -> str:
    """Return what is known of a job, in two parts between which the style shows its log; *head* stands below its status."""
    known: dict[str, str] = {**report.facts}
    if dashboard and "batch" in known:
        known["batch"] = link(f"batches/{known['batch']}", known["batch"])
    parts = [
        f"<h1>{text(report.job_id)} {state(report.status)}</h1>",
        f"<p class=why>{text_lines(report.message)}</p>" if report.message else "",
        head,
        notices(report.notes),
        facts(known.items()),
    ]
    if report.timeline:
        parts.append(f"<h2>Phases</h2>{_timeline(report)}")
    parts.append("</div><div class=below>")
    if report.failure:
        stack = escape("\n".join(report.stack))
        parts.append(f"<h2>First failure</h2><p>{text(report.failure)}</p>")
        parts.append(f"<pre class=stack>{stack}</pre>" if stack else "")
    if report.attempts:
        heads = ("attempt", "host", "took", "ended", "phase", "exit code", "message")
        cells = (
            (e.attempt, e.host, seconds_text(e.seconds), e.ended, e.phase, e.exit_code, e.message)
            for e in report.attempts
        )
        parts.append(f"<h2>Attempts</h2>{table(heads, cells)}")
    if report.usage:
        used = (row for host, each in report.usage.items() for row in usage_rows(host, each))
        names = ("host", "what", "over time", "last", "most", "of")
        parts.append(f"<h2>Utilisation</h2>{table(names, used, kind='usage')}")
    return "".join(parts)


def text_lines(value: str) -> str:
    """Return *value* as HTML with the same lines."""
    return "<br>".join(map(text, value.splitlines()))


def _timeline(report: Report) -> str:
    """Return a bar for each attempt, with a part for each phase; all in one scale."""
    from kinetic.jobs.report import RUNNING, WAITING
    from kinetic_payload.records.host_outcome import Phase

    order = [WAITING, *get_args(Phase), RUNNING]
    attempts = {
        number: [*spans] for number, spans in groupby(report.timeline, lambda span: span.attempt)
    }
    longest = max(sum(span.seconds for span in spans) for spans in attempts.values()) or 1.0
    rows = []
    for number, spans in attempts.items():
        parts = [
            (
                order.index(span.name) if span.name in order else len(order),
                100 * span.seconds / longest,
                f"{text(span.name)} {seconds_text(span.seconds, so_far=span.open)}",
            )
            for span in spans
        ]
        bar = "".join(
            f'<i class="c{colour}" style="width:{width:.1f}%" title="{title}"></i>'
            for colour, width, title in parts
        )
        legend = "".join(
            f"<span><i class=c{colour}></i>{title}</span>"
            for colour, _, title in parts
            if " 0.00s" not in title
        )
        name = f"<b>attempt {number}</b>" if len(attempts) > 1 else ""
        why = "".join(f"<p class=why>{text(each)}</p>" for span in spans for each in span.reasons)
        rows.append(f"{name}<div class=bar>{bar}</div><div class=legend>{legend}</div>{why}")
    return "".join(rows)


def log_text(lines: Iterable[LogLine], *, hosts: bool = True) -> str:
    """Return lines of a log; *hosts*: with the numbers of their hosts if there are several."""
    shown = "".join(
        f"<span class={line.stream}>{escape(line.shown if hosts else line.text)}\n</span>"
        for line in lines
    )
    return f"<span>{shown}</span>"


def log_section(title: str, lines: str, *, hosts: str = "") -> str:
    """Return a log that is scrolled to its end, and stays there."""
    legend = "<small>stdout, and <span class=stderr>stderr</span></small>"
    heading = f"<h2>{text(title)} {legend}</h2>"
    return f"<section>{heading}{hosts}<div class=log><pre>{lines}</pre></div></section>"


def host_links(address: str, hosts: int, chosen: int | None) -> str:
    """Return links to the page of a job at *address* with the log of one host, or of all."""
    if hosts == 1:
        return ""
    names = [(None, "all hosts"), *((host, f"host {host}") for host in range(hosts))]
    return "".join(
        f'<a class="chip{" here" * (host == chosen)}" href="{address}?host={"" if host is None else host}">{shown}</a>'
        for host, shown in names
    ).join(("<p class=chips>", "</p>"))


def more(address: str) -> str:
    """Return what asks for the lines of a log that follow, and is replaced by them."""
    return f'<i hx-get="{escape(address)}" hx-trigger="every 1s" hx-swap=outerHTML></i>'


def cluster_parts() -> str:
    """Return the parts of the page of a cluster, which are loaded one by one: each may fail, or take long."""
    parts = {
        "status": "Cluster",
        "pools": "Pools",
        "costs": f"Cost of the newest {PAGE} jobs",
    }
    return "".join(
        f'<h2>{title}</h2><div hx-get="cluster/{name}" hx-trigger="load, every 60s"><p class=empty>…</p></div>'
        for name, title in parts.items()
    )


def report_page(report: Report) -> str:
    """Return the page of a job as one file."""
    log = log_section("Last lines of the log", log_text(report.log)) if report.log else ""
    return document(report.job_id, f"<main><div>{job_page(report)}</div></main>{log}")


def batch_page(
    seen: Mapping[str, Any],
    manifest: GroupManifest,
    look: Look,
    head: str,
    clean: Callable[[str], str],
) -> str:
    """Return the page of a batch, of which *seen* are those of `kinetic batches status --json`; *clean* redacts texts."""
    from kinetic.batches.progress import cells_of, pace, summary

    states, each = cells_of(manifest, look, _CELLS)
    cells = "".join(
        f'<a class={status.value} href="jobs/{manifest.job_id(number * each)}" '
        f'title="{number * each}: {status.value.lower()}"></a>'
        for number, status in enumerate(states)
    )
    failures = (
        (
            len(one["inputs"]),
            one["type"],
            clean(one["message"]),
            Html(
                " ".join(
                    link(f"jobs/{manifest.job_id(index)}", index)
                    for index in one["inputs"][:_SHOWN_INPUTS]
                )
                + " …" * (len(one["inputs"]) > _SHOWN_INPUTS)
            ),
        )
        for one in seen["failures"][:PAGE]
    )
    slowest = (
        (f"{one['seconds']:.1f} s", link(f"jobs/{one['job_id']}", one["job_id"]))
        for one in seen["slowest"]
    )
    known = {
        "inputs": summary(manifest, look) + pace(seen["rate"] or 0, len(look.left)),
        "tags": clean(", ".join(f"{key}={value}" for key, value in seen["tags"].items())),
        **{name: seen[name] for name in ("function", "accelerator", "backend")},
        "submitted": seen["created_at"],
    }
    counts = "".join(
        f'<i class={name} style="width:{100 * count / max(seen["inputs"], 1):.2f}%" title="{count} {name.lower()}"></i>'
        for name, count in sorted(seen["counts"].items(), reverse=True)
    )
    parts = [
        f"<h1>{text(clean(seen['name'] or seen['group_id']))} {state(seen['status'])}</h1>",
        f"<p class=why>{text_lines(clean(seen['message']))}</p>" if seen["message"] else "",
        head,
        facts(known.items()),
        f"<div class=bar>{counts}</div>",
        f"<p><small>Each cell stands for {each} inputs.</small></p>" if each > 1 else "",
        f"<div class=grid>{cells}</div>",
    ]
    if seen["failures"]:
        parts.append("<h2>Failures</h2>")
        parts.append(table(("inputs", "type", "message", "which"), failures))
        more = len(seen["failures"]) - PAGE
        parts.append(f"<p>{more:,} more kinds of failure.</p>" if more > 0 else "")
    if seen["slowest"]:
        parts.append("<h2>Slowest</h2>" + table(("took", "input"), slowest))
    return "".join(parts)
