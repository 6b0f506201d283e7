import json
import os
import pathlib
import shutil
import sys
import threading
import time

import kinetic

STORE = pathlib.Path(os.environ["KINETIC_HOME"], "store")


@kinetic.run(accelerator="cpu")
def work(size=1, seconds=0.0):
    print("working", flush=True)
    time.sleep(seconds)
    return b"x" * size


@kinetic.run(accelerator="cpu")
def fail():
    raise ValueError("bad")


def tried(call):
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def again(job):
    return kinetic.attach(job.job_id)


def finished(function, *args):
    job = function.run_async(*args)
    tried(lambda: again(job).result(timeout=100, cleanup=False))
    return job


def alone(job):
    # Returns when the job's supervisor is gone.
    from kinetic.home.liveness import wait_for_death
    from kinetic.home.paths import Home

    while not wait_for_death(Home(os.environ["KINETIC_HOME"]).job(job.job_id), 1.0):
        pass


def running():
    job = work.run_async(1, 600)
    assert next(job.log_lines(follow=True)).text == "working"
    return job


def cli(*args):
    from click.testing import CliRunner

    from kinetic_cli.main import cli as command

    done = CliRunner().invoke(command, args)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "unexpectedly" not in done.output, done.output
    return done.exit_code, done.output


def cleaned_up():
    found = {}
    makers = {"running": running, "done": lambda: finished(work), "failed": lambda: finished(fail)}
    for case in ("running k8s gcs", "running gcs", "done k8s", "done gcs", "failed k8s gcs"):
        state, *parts = case.split()
        job, k8s, gcs = makers[state](), "k8s" in parts, "gcs" in parts
        cleaned = tried(lambda: job.cleanup(k8s=k8s, gcs=gcs))
        found[case] = [
            cleaned.partition(":")[0],
            tried(lambda: job.status().value).strip("'"),
            tried(lambda: again(job).status().value).strip("'").partition(":")[0],
            tried(lambda: again(job).result(timeout=0, cleanup=False)).partition(":")[0],
            (STORE / job.job_id).exists(),
        ]
        if case == "done gcs":
            assert "its artifacts were removed" in tried(job.result)
            alone(job)
            assert job.status().value == "SUCCEEDED"
        job.cleanup()
        job.cleanup()
        assert job.status().value == "NOT_FOUND"
        assert tried(job.cancel).startswith("JobNotFoundError")
        assert not (STORE / job.job_id).exists()
        assert "working" in job.logs() or state != "done"
    return found


def collected_at_once():
    ends = []
    for _ in range(2):
        job = work.run_async(200_000, 0.1)
        handles = [again(job) for _ in range(4)]
        threads = [
            threading.Thread(
                target=lambda h=h: ends.append(tried(lambda: len(h.result(timeout=100))))
            )
            for h in handles
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return ends


def cancelled_and_finished():
    ends = []
    for number in range(6):
        job = work.run_async(1, 0.02 * (number % 4))
        time.sleep(0.03 * (number % 6))
        ends.append(
            [
                tried(job.cancel),
                job.status().value,
                tried(lambda: job.result(cleanup=False)),
                tried(job.cancel),
                tried(again(job).result),
            ]
        )
    return ends


def cleaned_up_while_waiting():
    ends = []
    for number in range(2):
        job = work.run_async(1, 600)
        threading.Timer(0.2 * number, again(job).cleanup).start()
        ends.append(tried(lambda: job.result(timeout=100)).partition(":")[0])
    return ends


def damaged_records(damages):
    good, ends = finished(work), []
    for part, damage in damages.items():
        job = finished(work)
        path = STORE / job.job_id / part
        path.write_text(damage)
        error = tried(lambda: again(job).result(timeout=100, cleanup=False))
        listed = cli("jobs", "list", "--json")
        ends.append([error, listed[0], good.job_id in listed[1]])
        cleaned = tried(lambda: job.cleanup())
        assert (STORE / job.job_id).exists() == (cleaned != "None"), cleaned
        assert cli("jobs", "status", job.job_id)[0] == cli("jobs", "result", job.job_id)[0] == 1
        shutil.rmtree(STORE / job.job_id, ignore_errors=True)
    return ends


def damaged_state(damages):
    ends = []
    for damage in damages:
        job = finished(work)
        alone(job)
        (STORE / job.job_id / "outcome.json").unlink()
        state = pathlib.Path(os.environ["KINETIC_HOME"], "jobs", job.job_id, "state.json")
        state.write_text(damage)
        ends.append(
            [cli("jobs", "status", job.job_id)[0], tried(lambda: again(job).result(timeout=100))]
        )
    return ends


@kinetic.run(accelerator="cpu")
def read(folder):
    return open(f"{folder}/file.txt").read()


def damaged_contents():
    def call():
        return read.run_async(kinetic.Data("set")).result(timeout=100)

    ends = [tried(call)]
    for folder in ("contexts", "data"):
        for path in [path for path in (STORE / folder).rglob("*") if path.is_file()]:
            path.write_bytes(bytes(path.stat().st_size))
        ends.append(tried(call))
        shutil.rmtree(STORE / folder)
        ends.append(tried(call))
    return ends


def unknown():
    job = finished(work)
    job.cleanup()
    NO_JOB = "cpu-work-20260101-000000-0123456"
    return [
        tried(lambda: kinetic.attach(NO_JOB)),
        tried(lambda: kinetic.attach("../x")),
        cli("jobs", "status", NO_JOB),
        tried(lambda: again(job)),
        cli("jobs", "logs", job.job_id),
    ]


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    print(json.dumps(globals()[name](*map(json.loads, arguments))))
