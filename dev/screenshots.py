"""Take the pictures of `docs/dashboard.md`: a list of jobs, a job and a batch, as Chromium shows them.

`uv run python dev/screenshots.py` needs Debian's packages chromium and chromium-driver; it runs the program below in a
temporary folder, and writes `docs/dashboard-jobs.png`, `docs/dashboard-job.png` and `docs/dashboard-batch.png`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

DOCS = Path(__file__).resolve().parent.parent / "docs"
PROGRAM = """\
import sys, time
import kinetic

@kinetic.run(accelerator="cpu")
def train(rate):
    loss = 4.0
    for step in range(120 if rate < 1 else 30):
        loss *= 0.97
        print(f"step {step}: loss {loss:.4f}", flush=True)
        if step % 9 == 8:
            print(f"warning: gradient clipped in step {step}", file=sys.stderr, flush=True)
        for _ in range(8):
            sum(i * i for i in range(100_000))
        time.sleep(0.3)
    if rate > 1:
        raise ValueError(f"rate={rate} diverges")
    return loss

@kinetic.run(accelerator="tpu-v5litepod-16", backend="local")
def evaluate(folds):
    return folds

@kinetic.run(accelerator="cpu")
def score(seed):
    time.sleep(0.5)
    if seed % 17 == 3:
        raise ArithmeticError("the solver did not converge")
    return seed

print(train.run_async(5.0).job_id)
evaluate.run_async(3)
print(score.run_async_map(range(240), name="seeds", max_concurrent=2).group_id)
time.sleep(20)
print(train.run_async(0.1).job_id)
"""

_REPLACE = (
    "document.body.innerHTML = document.body.innerHTML.replaceAll(arguments[0], arguments[1])"
)


def main() -> None:
    """Run the program, and take the pictures."""
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "train.py").write_text(PROGRAM, encoding="utf-8")
        Path(scratch, "pyproject.toml").touch()
        environment = {**os.environ, "KINETIC_HOME": f"{scratch}/home", "KINETIC_BACKEND": "local"}  # noqa: TID251 - a child's
        given = {"cwd": scratch, "env": environment, "stdout": subprocess.PIPE, "text": True}
        kinetic = [sys.executable, "-m", "kinetic_cli"]
        command = [*kinetic, "dashboard", "--no-browser", "--port", "0"]
        dashboard = subprocess.Popen(command, **given)  # type: ignore[call-overload]
        address = dashboard.stdout.readline().strip()
        done = subprocess.run([sys.executable, "train.py"], check=True, **given)  # type: ignore[call-overload]
        failed, batch, running = done.stdout.split()
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for each in ("headless=new", "no-sandbox", "hide-scrollbars", "window-size=1000,760"):
            options.add_argument(f"--{each}")
        driver = webdriver.Chrome(options, Service(str(shutil.which("chromedriver"))))
        try:
            for name, page, shows in (
                ("job", f"jobs/{running}", "processors"),
                ("jobs", "", failed),
                ("batch", f"batches/{batch}", "converge"),
            ):
                driver.get(f"{address}{page}")
                WebDriverWait(driver, 120).until(partial(_shows, shows))
                time.sleep(2)  # noqa: TID251 - the log, and the layout
                driver.execute_script(_REPLACE, sys.prefix, "~/project/.venv")
                driver.save_screenshot(str(DOCS / f"dashboard-{name}.png"))
        finally:
            driver.quit()
            dashboard.terminate()
            for job in (failed, running):
                subprocess.run([*kinetic, "jobs", "cancel", job], check=False, **given)  # type: ignore[call-overload]
            subprocess.run([*kinetic, "batches", "cancel", batch], check=False, **given)  # type: ignore[call-overload]


def _shows(text: str, driver: webdriver.Chrome) -> bool:
    return text in driver.page_source


if __name__ == "__main__":
    main()
