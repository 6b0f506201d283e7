"""The dashboard in a browser: what a page shows as it happens, what its buttons do, and what never runs."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from urllib.parse import urlsplit

from .conftest import Browser, Laptop


def test_a_running_job_is_followed_and_cancelled_after_a_confirmation(
    browser: Browser, laptop: Laptop, tmp_path: Path
) -> None:
    browser.driver.get(laptop.address)
    assert "No jobs." in browser.text()
    job = laptop.submit("train", str(tmp_path))
    browser.until(lambda: "RUNNING" in browser.text("tr:has(a[href*='jobs/'])"))
    assert "running 1" in browser.text(".chips")
    browser.driver.find_element("link text", job).click()
    browser.until(lambda: "step 0" in browser.text(".log .stdout"))
    browser.until(lambda: "warning 0" in browser.text(".log .stderr"))
    (tmp_path / "go-1").touch()
    browser.until(lambda: "warning 1" in browser.text(".log"))
    assert browser.text(".log").count("step 0") == 1
    names = [each.split()[0] for each in browser.text(".legend").split("…")[0].splitlines()]
    assert names == ["waiting", "running"]

    assert job in browser.press("Cancel", confirm=False)
    assert json.loads(laptop.kinetic("jobs", "status", job, "--json"))["status"] == "RUNNING"
    browser.press("Cancel", confirm=True)

    browser.until(lambda: browser.text("#said") == f"Cancelled {job}.")
    browser.until(lambda: browser.text("h1") == f"{job} CANCELLED")
    assert "call " in browser.text(".legend")
    assert "…" not in browser.text(".legend")
    [listed] = json.loads(laptop.kinetic("jobs", "list", "--json"))
    assert listed["cancelled"] is True
    assert browser.until(lambda: "terminated" in browser.text(".below"))
    browser.press("Clean up", confirm=True)
    browser.until(lambda: "It was cleaned up" in browser.text())
    assert laptop.kinetic("jobs", "list", "--json") == "[]"
    assert "step 1" in browser.text(".log")


def test_what_a_job_prints_is_shown_and_never_runs_and_no_page_asks_another_host(
    browser: Browser, laptop: Laptop, tmp_path: Path
) -> None:
    job, group = laptop.submit("hostile"), laptop.submit("batch", str(tmp_path))
    tag = "<script>window.pwned = 1</script>"

    browser.driver.get(laptop.address)
    browser.until(lambda: browser.text().count("FAILED") == 2)
    browser.driver.get(f"{laptop.address}jobs/{job}")
    browser.until(lambda: tag in browser.text(".log"))
    assert f"ValueError: {tag}" in browser.text(".why")
    assert r"\x1b]0;title\x07 red password=[removed]" in browser.text(".log")
    assert "swordfish" not in browser.driver.page_source
    browser.driver.get(f"{laptop.address}batches/{group}")
    assert tag in browser.until(lambda: browser.text("h1"))

    assert browser.driver.execute_script("return window.pwned") is None
    asked = {
        urlsplit(address)._replace(path="", query="").geturl() for address in browser.requests()
    }
    assert asked == {laptop.address.rpartition("/")[0].rpartition("/")[0]}
    assert browser.driver.get_log("browser") == []


def test_a_batch_has_a_cell_for_each_input_and_what_failed_is_retried(
    browser: Browser, laptop: Laptop, tmp_path: Path
) -> None:
    group = laptop.submit("batch", str(tmp_path))
    browser.driver.get(f"{laptop.address}batches/{group}")
    browser.until(lambda: "FAILED" in browser.text("h1"))
    cells = browser.driver.find_elements("css selector", ".grid a")
    assert [cell.get_attribute("class") for cell in cells] == ["SUCCEEDED", "FAILED"] * 4
    failures = [row.text for row in browser.driver.find_elements("css selector", "table tr")]
    odd = "is odd, password=[removed]"
    assert failures[1:3] == [f"2 ValueError 1 {odd} 1 5", f"2 ValueError 3 {odd} 3 7"]

    (tmp_path / "go-1").touch()
    assert "4 inputs" in browser.press("Retry what failed", confirm=True)
    browser.until(lambda: "SUCCEEDED" in browser.text("h1"))

    browser.driver.find_elements("css selector", ".grid a")[3].click()
    browser.until(lambda: browser.text("h1").endswith("-3 SUCCEEDED"))
    browser.driver.find_element("link text", group).click()
    browser.until(lambda: "8 done" in browser.text("dl"))


def test_the_page_that_a_report_writes_is_that_of_the_dashboard_and_needs_no_server(
    browser: Browser, laptop: Laptop, tmp_path: Path
) -> None:
    job = laptop.submit("hostile")
    browser.driver.get(f"{laptop.address}jobs/{job}")
    browser.until(lambda: "FAILED" in browser.text("h1"))
    shown = [browser.text("h1"), browser.text(".legend"), browser.text(".stack")]
    laptop.kinetic("jobs", "report", job, "--html", str(tmp_path / "page.html"))
    browser.requests()

    browser.driver.get(f"file://{tmp_path}/page.html")

    assert [browser.text("h1"), browser.text(".legend"), browser.text(".stack")] == shown
    assert browser.driver.find_element("css selector", ".bar i").size["width"] > 0
    assert browser.requests() == [f"file://{tmp_path}/page.html"]
    assert browser.driver.execute_script("return window.pwned") is None


def test_a_page_whose_dashboard_has_ended_says_so(browser: Browser, laptop: Laptop) -> None:
    browser.driver.get(laptop.address)
    assert browser.text(".lost") == ""

    laptop.dashboard.send_signal(signal.SIGINT)

    browser.until(lambda: "not up to date" in browser.text(".lost"))
