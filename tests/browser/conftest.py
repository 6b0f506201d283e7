"""A real browser, Debian's Chromium, and a user's machine with `kinetic dashboard`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

REQUIRED = "KINETIC_TEST_BROWSER"
HERE = Path(__file__).parent
KINETIC = (sys.executable, "-m", "kinetic_cli")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave these tests out of runs that do not name them: they start a browser."""
    named = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    return None if any(path == HERE or HERE in path.parents for path in named) else True


class Browser:
    """Chromium without a window; it remembers which addresses its pages have asked for."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def text(self, selector: str = "body") -> str:
        found = self.driver.find_elements("css selector", selector)
        return found[0].text if found else ""

    def until(self, condition: Callable[[], Any]) -> Any:
        """Return what *condition* returns as soon as that is true; fail with the text of the page."""
        # An element may be replaced by its successor while it is looked at.
        ignored = [StaleElementReferenceException]
        wait = WebDriverWait(self.driver, 120, poll_frequency=0.1, ignored_exceptions=ignored)
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            raise AssertionError(self.text()) from None

    def press(self, label: str, *, confirm: bool) -> str:
        """Press a button, and answer its question; return the question."""
        path = f"//button[text()='{label}']"
        self.until(lambda: self.driver.find_elements("xpath", path))
        self.driver.find_element("xpath", path).click()
        alert = self.driver.switch_to.alert
        asked = alert.text
        alert.accept() if confirm else alert.dismiss()
        return asked

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since the last call."""
        messages = [json.loads(entry["message"]) for entry in self.driver.get_log("performance")]
        events = [message["message"] for message in messages]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        reason = "chromium or chromedriver is missing (Debian's chromium, chromium-driver)"
        if os.environ.get(REQUIRED) == "required":  # noqa: TID251
            pytest.fail(f"{reason}, and {REQUIRED}=required")
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    # Chromium's own services would ask other hosts. Its sandbox does not run as root.
    for each in ("headless=new", "disable-gpu", "disable-background-networking", "no-first-run"):
        options.add_argument(f"--{each}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    driver = webdriver.Chrome(options, Service(str(programs[1])))
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    chromium.driver.get("about:blank")
    chromium.requests()
    chromium.driver.get_log("browser")
    return chromium


class Laptop:
    """A project, a home, and a dashboard."""

    def __init__(self, project: Path, home: Path) -> None:
        self.project = project
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KINETIC_")}  # noqa: TID251
        self.environment = {**kept, "KINETIC_HOME": str(home), "KINETIC_BACKEND": "local"}
        command = [*KINETIC, "dashboard", "--no-browser", "--port", "0"]
        self.dashboard = subprocess.Popen(
            command, env=self.environment, cwd=project, stdout=subprocess.PIPE, text=True
        )
        assert self.dashboard.stdout is not None
        self.address = self.dashboard.stdout.readline().strip()

    def run(self, *command: str) -> str:
        ran = subprocess.run(
            command, env=self.environment, cwd=self.project, stdout=subprocess.PIPE, text=True,
            stdin=subprocess.DEVNULL, check=True, timeout=300,
        )  # fmt: skip
        return ran.stdout.strip()

    def submit(self, *args: str) -> str:
        return self.run(sys.executable, "main.py", *args).split()[-1]

    def kinetic(self, *args: str) -> str:
        return self.run(*KINETIC, *args)


@pytest.fixture
def laptop(tmp_path: Path, warm: Callable[[Path], Path]) -> Iterator[Laptop]:
    project = tmp_path / "project"
    project.mkdir()
    shutil.copyfile(HERE / "projects" / "main.py", project / "main.py")
    laptop = Laptop(project, warm(tmp_path / "home"))
    yield laptop
    laptop.dashboard.send_signal(signal.SIGINT)
    assert laptop.dashboard.wait(60) == 0
